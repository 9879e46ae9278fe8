"""What a process says of itself to Prometheus: collectors that read counts when asked, and the page.

``exposition`` writes the page in slices, ``endpoint`` serves it in threads, ``service`` puts both
together for a process. The collectors of a service are in its own package. ``supervised`` is the page
of ``penstock serve``.
"""
