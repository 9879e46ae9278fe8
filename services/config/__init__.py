"""Settings of the services: each is declared once, for flag, variable, file, help and the table of the docs.

``groups`` declares every setting, by what it is about, with the order of help and docs at its end.
``settings`` composes what each service takes, and checks what must fit together. ``flags`` reads them.
``values`` has the types of values, ``usage`` the line about wrong usage that the commands print, too.
A setting that all services take is a field of a group of ``ProcessSettings``: no other module names it.
Defaults of the engine are those of ``storage.config``. Nothing here imports a service.
"""
