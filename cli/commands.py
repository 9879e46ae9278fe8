"""Where each command lives. A command is imported when it is called, all of them for the list of commands."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any, Final

import typer
from typer.main import get_command

OFFLINE: Final = "Offline"
PANELS: Final = {
    "Topics and messages": {
        "pub": "cli.pub",
        "sub": "cli.sub",
        "query": "cli.query",
        "message": "cli.message",
        "timers": "cli.timers",
        "recall": "cli.timers",
        "offsets": "cli.consumers.offsets",
        "bench": "cli.bench",
        "topic": "cli.topics",
        "group": "cli.consumers.groups",
        "dlq": "cli.consumers.dead_letters",
        "transactions": "cli.transactions",
    },
    "Services": {
        "top": "cli.top",
        "report": "cli.report",
        "status": "cli.status",
        "staged": "cli.staged",
        "retention": "cli.retention",
        "clients": "cli.consumers.clients",
        "serve": "cli.serving",
        "writer": "cli.serving",
        "reader": "cli.serving",
        "indexer": "cli.serving",
        "gateway": "cli.serving",
        "console": "cli.serving",
        "health": "cli.serving",
        "config": "cli.running_settings",
        "certs": "cli.certs",
        "profile": "cli.profile_commands",
    },
    "Accounts": {"user": "cli.accounts.users", "acl": "cli.accounts.acl"},
    OFFLINE: {"dump": "cli.offline", "doctor": "cli.offline", "job": "cli.jobs.app"},
}
"""Modules by panel of the list.

A module has a function of the command's name, or ``app`` with commands below it, or ``register(app)``.
"""
COMMANDS: Final = {name: module for panel in PANELS.values() for name, module in panel.items()}
PASSED_THROUGH: Final = frozenset({"serve", "writer", "reader", "indexer", "gateway", "console"})
"""These commands parse everything after them themselves."""
CALLERS: Final = frozenset({"console"})
"""Of these, those that call the services as every command does, by profiles and options of all commands."""
WITHOUT_PROFILE: Final = frozenset(
    {*(PASSED_THROUGH - CALLERS), "profile", "certs", *PANELS[OFFLINE]}
)
"""These commands call nobody: a file of profiles that is wrong does not stop them."""


@cache
def loaded(name: str, epilog: str) -> Any:
    """Return a command whose help breaks lines between paragraphs alone, with ``epilog`` under each page."""
    module = import_module(COMMANDS[name])
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
    command.rich_help_panel = next(panel for panel, names in PANELS.items() if name in names)
    for each in (command, *getattr(command, "commands", {}).values()):
        if each.help:
            each.help = re.sub(r"(?<!\n)\n(?!\n)", " ", each.help)
            each.epilog = epilog
    return command
