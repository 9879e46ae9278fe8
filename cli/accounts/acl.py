"""``penstock acl create|list|update|delete``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import counted, session_of

app = typer.Typer(help="Create, list, change and delete policies of users.", no_args_is_help=True)
User = Annotated[str, typer.Argument(help="Name of the user.")]
Resource = Annotated[
    str,
    typer.Argument(help="Topic:NAME, Topic:PREFIX*, Group:NAME, Cluster:* or * for everything."),
]


@app.command("create", help="Allow or deny a user something that no policy of it is about yet.")
@app.command("update", help="Change a policy of a user; it is found by resource and decision.")
def put(
    context: typer.Context,
    user: User,
    resource: Resource,
    actions: Annotated[
        str,
        typer.Option(
            help="All, or some of Pub,Sub,Create,Update,Delete,Get,List with commas between."
        ),
    ],
    source: Annotated[
        list[str] | None,
        typer.Option(help="Address or network that the user calls from; may be given again."),
    ] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Deny instead of allow.")] = False,
    default: Annotated[
        bool,
        typer.Option(
            "--default", help="Asked where no other policy of the user is about the resource."
        ),
    ] = False,
) -> None:
    """Put a policy: a new one, or with ``update`` in the place of one that is there."""
    from penstock import Policy

    session = session_of(context)
    with session.client() as client:
        policy = client.put_policy(
            Policy(
                user=user,
                resource=resource,
                actions=tuple(each.strip() for each in actions.split(",")),
                sources=tuple(source or ()),
                deny=deny,
                default=default,
            ),
            exists=context.info_name == "update",
        )
    verb = "denied" if policy.deny else "allowed"
    session.say(
        f"user [bold]{user}[/] is {verb} {', '.join(policy.actions)} on {policy.resource}",
        dataclasses.asdict(policy),
    )


@app.command("list")
def list_policies(
    context: typer.Context,
    user: Annotated[str, typer.Argument(help="Name of a user; without one, of all.")] = "",
) -> None:
    """List the policies. What no policy allows is denied to all but super users."""
    session = session_of(context)
    with session.client() as client:
        policies = client.policies(user)
    session.show(
        [
            {
                "user": policy.user,
                "resource": policy.resource,
                "actions": ", ".join(policy.actions),
                "sources": ", ".join(policy.sources) or "anywhere",
                "decision": "deny" if policy.deny else "allow",
                "default": policy.default,
            }
            for policy in policies
        ],
        json_rows=map(dataclasses.asdict, policies),
        empty="no policies: penstock acl create USER RESOURCE --actions ACTIONS",
    )


@app.command()
def delete(
    context: typer.Context,
    user: User,
    resource: Annotated[str, typer.Argument(help="As the policy has it.")] = "",
    every: Annotated[bool, typer.Option("--all", help="All policies of the user.")] = False,
) -> None:
    """Delete the policies of a user for a resource."""
    session = session_of(context)
    if bool(resource) == every:
        raise CommandFailed("give a resource, or --all", ExitCode.USAGE)
    with session.client() as client:
        count = client.delete_policies(user, resource)
    session.say(
        f"deleted {counted(count, 'policy') if count == 1 else f'{count} policies'} of [bold]{user}[/]",
        {"user": user, "resource": resource, "deleted": count},
    )
