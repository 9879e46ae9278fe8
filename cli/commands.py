"""Where each command lives, and its line in the list of all.

A command is imported when it is called. The list needs the lines alone; a test compares them
with the commands' own help.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand
from typer.main import get_command

MESSAGES: Final = "Topics and messages"
SERVICES: Final = "Services"
ACCOUNTS: Final = "Accounts"
OFFLINE: Final = "Offline"


class CommandPlace(NamedTuple):
    """The module of a command, and where the list of commands has it.

    The module has a function of the command's name, or an ``app`` of commands below it, or ``register(app)``.
    """

    module: str
    panel: str
    line: str


COMMANDS: Final = {
    "pub": CommandPlace(
        "cli.pub",
        MESSAGES,
        "Store one message, or one a line; --key, --tag and so on apply to all that name none.",
    ),
    "sub": CommandPlace(
        "cli.sub",
        MESSAGES,
        "Print the messages of a topic. Exit code 7 if a damaged one was met.",
    ),
    "query": CommandPlace(
        "cli.query",
        MESSAGES,
        "Find messages by key; exit code 8 if there are none. --json prints long bodies whole.",
    ),
    "message": CommandPlace(
        "cli.message", MESSAGES, "Show one message, and what each consumer group did with it."
    ),
    "timers": CommandPlace("cli.timers", MESSAGES, "Count delayed messages by when they are due."),
    "recall": CommandPlace(
        "cli.timers", MESSAGES, "Cancel a delayed message before it is delivered."
    ),
    "offsets": CommandPlace(
        "cli.consumers.offsets",
        MESSAGES,
        "Show what consumer groups have committed and how far they lag; exit code 8 if GROUP has not.",
    ),
    "bench": CommandPlace(
        "cli.bench",
        MESSAGES,
        "Store and read back messages in a topic of its own, and print rates and latencies.",
    ),
    "topic": CommandPlace(
        "cli.topics", MESSAGES, "Create, list, describe, change and delete topics."
    ),
    "group": CommandPlace(
        "cli.consumers.groups",
        MESSAGES,
        "Create, list, describe, change, reset and delete consumer groups.",
    ),
    "dlq": CommandPlace(
        "cli.consumers.dead_letters", MESSAGES, "List dead letters, show them, send them again."
    ),
    "transactions": CommandPlace(
        "cli.transactions", MESSAGES, "Transactions that nobody has ended."
    ),
    "top": CommandPlace(
        "cli.top", SERVICES, "Watch topics by rate, groups by lag, and how far the services are."
    ),
    "report": CommandPlace(
        "cli.report", SERVICES, "Print topics, queues, groups, skew and disk on one page."
    ),
    "status": CommandPlace(
        "cli.status",
        SERVICES,
        "Show positions of writer, reader and indexer, and what groups have leased; exit code 9 if one"
        " does not answer, 11 if the user lacks the right to one.",
    ),
    "staged": CommandPlace(
        "cli.staged",
        SERVICES,
        "List staged commits: each application's last commit, and those that are open.",
    ),
    "retention": CommandPlace(
        "cli.retention",
        SERVICES,
        "Show which files of the commit log will be deleted when, and what holds them.",
    ),
    "clients": CommandPlace(
        "cli.consumers.clients",
        SERVICES,
        "Show RocketMQ's clients that are connected, those silent for longest first.",
    ),
    "serve": CommandPlace("cli.serving", SERVICES, "Run all services under one supervisor."),
    "writer": CommandPlace(
        "cli.serving", SERVICES, "Run the writer: the one process that appends."
    ),
    "reader": CommandPlace("cli.serving", SERVICES, "Run the reader: serves what is stored."),
    "indexer": CommandPlace("cli.serving", SERVICES, "Run the indexer: builds the index files."),
    "gateway": CommandPlace(
        "cli.serving", SERVICES, "Run the gateway: serves RocketMQ's own clients."
    ),
    "console": CommandPlace("cli.serving", SERVICES, "Run the console: pages for a browser."),
    "health": CommandPlace(
        "cli.serving", SERVICES, "Ask a service how it is; exit code 0 only if it is SERVING."
    ),
    "config": CommandPlace(
        "cli.running_settings", SERVICES, "Show and change settings of running services."
    ),
    "certs": CommandPlace(
        "cli.certs",
        SERVICES,
        "Make a certificate authority, a certificate for the services and one for each client.",
    ),
    "profile": CommandPlace(
        "cli.profile_commands", SERVICES, "Keep addresses, TLS files and keys under a name."
    ),
    "user": CommandPlace(
        "cli.accounts.users",
        ACCOUNTS,
        "Create, list, change and delete users. PENSTOCK_ACCESS_KEY and PENSTOCK_SECRET_KEY say who asks.",
    ),
    "acl": CommandPlace(
        "cli.accounts.acl", ACCOUNTS, "Create, list, change and delete policies of users."
    ),
    "dump": CommandPlace(
        "cli.offline",
        OFFLINE,
        "Print everything a store holds: topics, offsets, queues, messages, files.",
    ),
    "doctor": CommandPlace(
        "cli.offline",
        OFFLINE,
        "Check every file of a store, running or not, and say what is wrong, what it costs and what repairs it.",
    ),
    "job": CommandPlace(
        "cli.jobs.app", OFFLINE, "Jobs over whole stores, with Spark (make setup-spark)."
    ),
}
PASSED_THROUGH: Final = frozenset({"serve", "writer", "reader", "indexer", "gateway", "console"})
"""These commands parse everything after them themselves."""
CALLERS: Final = frozenset({"console"})
"""Of these, those that call the services as every command does, by profiles and options of all commands."""
WITHOUT_PROFILE: Final = frozenset(
    {*(PASSED_THROUGH - CALLERS), "profile", "certs"}
    | {name for name, place in COMMANDS.items() if place.panel == OFFLINE}
)
"""These commands call nobody: a file of profiles that is wrong does not stop them."""


def listed(name: str) -> TyperCommand:
    """Return what the list of commands shows of one; it cannot be run."""
    place = COMMANDS[name]
    return TyperCommand(name, help=place.line, rich_help_panel=place.panel)


@cache
def loaded(name: str, epilog: str) -> Any:
    """Return a command whose help breaks lines between paragraphs alone, with ``epilog`` under each page."""
    module = import_module(COMMANDS[name].module)
    holder = typer.Typer(add_completion=False, rich_markup_mode="rich")
    holder.callback()(lambda: None)  # a group, however many commands there are
    if hasattr(module, "register"):
        module.register(holder)
    elif hasattr(module, "app"):
        holder.add_typer(module.app, name=name)
    else:
        holder.command(name)(getattr(module, name))
    group: Any = get_command(holder)
    command = group.commands[name]
    for each in (command, *getattr(command, "commands", {}).values()):
        if each.help:
            each.help = re.sub(r"(?<!\n)\n(?!\n)", " ", each.help)
            each.epilog = epilog
    return command
