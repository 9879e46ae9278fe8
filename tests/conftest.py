"""For all tests: how long an example takes, on whatever machine, is no property."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "penstock", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("penstock")
