"""The settings that clients are answered with: theirs, with what the service decides filled in."""

from __future__ import annotations

from typing import Final

from services.gateway.groups import KnownGroup
from services.gateway.v2 import definition_pb2 as v2

RECEIVE_BATCH_SIZE: Final = 32
LONG_POLL_SECONDS: Final = 20
PRODUCER_ATTEMPTS: Final = 3
_PRODUCER_INITIAL_MS: Final = 10
_PRODUCER_MAX_MS: Final = 1_000
_PRODUCER_MULTIPLIER: Final = 2.0
_LITE_TOPIC_SIZE_MAX: Final = 64


def producer_settings(asked: v2.Settings, body_bytes_max: int) -> v2.Settings:
    """Return the settings of a producer."""
    settings = v2.Settings()
    settings.CopyFrom(asked)
    settings.publishing.max_body_size = body_bytes_max
    settings.publishing.validate_message_type = True
    policy = settings.backoff_policy
    policy.max_attempts = PRODUCER_ATTEMPTS
    policy.exponential_backoff.initial.FromMilliseconds(_PRODUCER_INITIAL_MS)
    policy.exponential_backoff.max.FromMilliseconds(_PRODUCER_MAX_MS)
    policy.exponential_backoff.multiplier = _PRODUCER_MULTIPLIER
    settings.metric.Clear()
    settings.metric.on = False
    return settings


def consumer_settings(asked: v2.Settings, group: KnownGroup) -> v2.Settings:
    """Return the settings of a consumer of a group."""
    settings = v2.Settings()
    settings.CopyFrom(asked)
    subscription = settings.subscription
    subscription.fifo = group.orderly
    subscription.receive_batch_size = RECEIVE_BATCH_SIZE
    if not subscription.long_polling_timeout.seconds:
        subscription.long_polling_timeout.FromSeconds(LONG_POLL_SECONDS)
    subscription.max_lite_topic_size = _LITE_TOPIC_SIZE_MAX
    settings.backoff_policy.Clear()
    settings.backoff_policy.max_attempts = group.max_attempts
    group.fill_backoff(settings.backoff_policy)
    settings.metric.Clear()
    settings.metric.on = False
    return settings
