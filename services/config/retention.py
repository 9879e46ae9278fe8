"""Settings of retention: which files of the log are deleted when."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field

from storage.config import StoreConfig

_STORE: Final = StoreConfig()


class RetentionSettings(BaseModel):
    """What is deleted when; percentages are of the disk that the store is on."""

    retention_ms: int = Field(
        _STORE.retention_ms,
        ge=0,
        description="Files of the log are deleted so long after their last change, with their messages, read "
        "or not; 0: nothing is deleted, and the disk is not looked at.",
    )
    retention_delete_hours: str = Field(
        _STORE.retention_delete_hours,
        description="Hours of the day in which expired files are deleted, such as 02;04; *: all.",
    )
    retention_clean_percent: int = Field(
        _STORE.retention_clean_percent,
        ge=1,
        le=100,
        description="Of the disk; above it expired files are deleted at any hour.",
    )
    retention_force_percent: int = Field(
        _STORE.retention_force_percent,
        ge=1,
        le=100,
        description="Above it the oldest files are deleted, whatever their age; 100: never.",
    )
    retention_refuse_percent: int = Field(
        _STORE.retention_refuse_percent,
        ge=1,
        le=100,
        description="Above it producers are refused with RESOURCE_EXHAUSTED, until the disk is down to the "
        "percentage before; 100: never.",
    )
