"""Accounts: users and what policies let them do. For super users; others see what they may not."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from penstock import Policy
from services.console.page import BadInput, Page

ACTIONS = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")


async def show(page: Page) -> Response:
    """Show users and policies."""
    users, policies = await asyncio.gather(
        page.ask("writer", "users", page.client.users),
        page.ask("writer", "policies", page.client.policies),
    )
    wanted = page.given("q").lower()
    of_user: dict[str, list[Policy]] = {}
    for policy in policies.value or ():
        of_user.setdefault(policy.user, []).append(policy)
    return page.show(
        "accounts.html",
        sheet=page.sheet([each for each in users.value or () if wanted in each.name.lower()]),
        policies=of_user,
        wanted=wanted,
        actions=ACTIONS,
        problem=users.error.message if users.error is not None and not users.is_away else "",
    )


async def create_user(page: Page) -> Response:
    """Create a user; its secret is shown once."""
    kind = page.given("kind", "normal")
    if kind not in ("normal", "super", "service"):
        raise BadInput("kind: normal, super or service")
    made = await page.client.create_user(page.given("name"), kind)  # type: ignore[arg-type]
    page.answers.forget()
    return page.show("secret.html", name=made.user.name, secret=made.secret_key)


async def change_user(page: Page) -> Response:
    """Enable, disable or delete a user, or give it another secret."""
    name, change = page.given("name"), page.given("change")
    if change in ("enable", "disable"):
        await page.client.update_user(name, enabled=change == "enable")
        return page.done(f"User {name}: {change}d.", "/accounts")
    if change == "new-secret":
        made = await page.client.add_secret(name)
        page.answers.forget()
        return page.show("secret.html", name=name, secret=made.secret_key)
    if change == "drop-old-secret":
        await page.client.update_user(name, drop_old_secrets=True)
        return page.done(f"User {name}: its newest secret alone is good.", "/accounts")
    if change == "delete":
        if page.given("typed") != name:
            raise BadInput(f"Type the user's name, {name}, to delete it. Nothing was deleted.")
        await page.client.delete_user(name)
        return page.done(f"User {name} and its policies are deleted.", "/accounts")
    raise BadInput("change: enable, disable, new-secret, drop-old-secret or delete")


async def put_policy(page: Page) -> Response:
    """Allow or deny a user something."""
    actions = [each for each in page.form.getlist("actions") if isinstance(each, str)]
    policy = await page.client.put_policy(
        Policy(
            user=page.given("user"),
            resource=page.given("resource"),
            actions=tuple(actions),
            sources=tuple(page.given("sources").replace(",", " ").split()),
            deny=page.given("decision") == "deny",
        )
    )
    verb = "denied" if policy.deny else "allowed"
    return page.done(
        f"User {policy.user} is {verb} {', '.join(policy.actions)} on {policy.resource}.",
        "/accounts",
    )


async def delete_policy(page: Page) -> Response:
    """Delete a user's policies for a resource."""
    user, resource = page.given("user"), page.given("resource")
    if not resource:
        raise BadInput("resource: say which policy")
    await page.client.delete_policies(user, resource)
    return page.done(f"The policies of {user} for {resource} are deleted.", "/accounts")
