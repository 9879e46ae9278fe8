"""The console: pages for a browser about one store, over the calls that every client can make.

``app`` puts ``pages``, one module a page, behind ``security`` (headers, origins) and ``sessions`` (who
signed in; ``attempts`` to). A `page` asks through ``answers``, which keeps what a service said last, shares
it between all pages of a user and knows who is away; ``rates`` makes rates of it, ``alerts`` says what is
wrong. ``bodies`` are of messages. ``templates`` and ``static`` are what a browser gets.
No module opens the store.
"""
