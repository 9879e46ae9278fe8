"""Settings of the services: each is declared once, for flag, variable, file, help and docs table.

``process`` has what every process takes, ``messaging`` what serving RocketMQ's clients takes,
``transactions`` and ``retention`` theirs; ``settings`` composes the settings of each service;
``flags`` reads them. Defaults of the engine come from ``storage.config``. Nothing here imports a service.
"""
