"""For Django REST Framework: a whole view or viewset under one contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from twicesafe.core.policy import Operation, Policy
from twicesafe.django.contract import MARK, Contract, contract_from, entering, name_of
from twicesafe.errors import ConfigurationError


class IdempotentMixin:
    """Before APIView or a viewset among the bases: every method that takes keys by its policy is an operation.

    `idempotency` is a Policy, or a dict of a Policy's settings. The claim is made after `initial()`: authentication,
    permissions and throttling come first. A method with a contract of its own, by @idempotent, keeps that.
    """

    idempotency: ClassVar[Policy | Mapping[str, Any]] = {}
    twicesafe_contract: ClassVar[Contract]

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        said = cls.idempotency
        if isinstance(said, Policy):
            cls.twicesafe_contract = contract_from(said, None, None, {})
        else:
            cls.twicesafe_contract = contract_from(None, None, None, dict(said))

    @classmethod
    def as_view(cls, *args: Any, **how: Any) -> Any:
        """See APIView. ConfigurationError for a class that is none: nothing would claim there."""
        if not hasattr(cls, "initialize_request"):
            raise ConfigurationError(
                f"{cls.__name__} is no view of REST framework: put IdempotentMixin before APIView or a viewset, and on "
                "Django's own class-based views use @method_decorator(idempotent())"
            )
        return super().as_view(*args, **how)  # type: ignore[misc]

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """What comes before the method. Nothing that it refuses leaves a record."""
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        name = request.method.lower()
        method = getattr(self, name, None)
        contract = self.twicesafe_contract
        if method is None or request.method not in contract.policy.methods or hasattr(method, MARK):
            return
        called = f"{name_of(type(self))}.{getattr(self, 'action', None) or name}"
        # An instance serves one request.
        setattr(self, name, entering(method, contract, Operation(called, contract.policy)))
