"""A checker for anybody's API: does a retry with an idempotency key do its work once, and say so?

It knows a target over HTTP and by nothing else, and uses nothing of the rest of the package: what one gets wrong the
other must not get wrong in the same way.
"""
