"""Who calls, and what they may do: the interceptor of every RPC.

Read ``rights`` (method by method: the action, and where its request names topics and groups), ``signatures``
(who signed), ``principal`` (one user at one address), ``guard`` (the interceptor), ``servicer`` (the RPCs
that change accounts). What a policy means is ``storage.accounts``'s.
"""
