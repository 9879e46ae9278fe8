"""Accounts: who may call, and who may do what to which topic and group.

``rules`` decides (RocketMQ 5's ACL 2.0), ``document`` is the file ``config/accounts.json``, ``account_table``
reads and changes it. Calls, signatures and certificates are the services' (``services.accounts``): nothing
here knows gRPC.
"""
