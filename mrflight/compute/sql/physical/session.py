"""Sessions that plans are made and decoded in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from mrflight.compute.sql.engine import new_session
from mrflight.compute.sql.user_functions import FunctionCalls, UserFunction, register_stand_ins

if TYPE_CHECKING:
    from datafusion import RuntimeEnvBuilder, SessionContext


class PlanSession(msgspec.Struct, frozen=True):
    """The options that a query is planned with, and the functions of the user that it calls."""

    options: Mapping[str, str]
    functions: tuple[UserFunction, ...] = ()

    def of(self, plan: bytes) -> PlanSession:
        """Return the session of a plan, without functions whose names are nowhere in it."""
        named = (each for each in self.functions if each.name.encode() in plan)
        return PlanSession(self.options, tuple(named))

    def open(
        self,
        calls: FunctionCalls | None = None,
        *,
        partitions: int = 1,
        runtime: RuntimeEnvBuilder | None = None,
    ) -> SessionContext:
        """Return a session. The functions are called by ``calls``; without it they return nulls.

        It encodes no code of a function into a plan, and refuses a plan that has some: DataFusion
        would unpickle it, which runs whatever whoever made the plan likes.
        """
        session = new_session(self.options, partitions=partitions, runtime=runtime)
        session = session.with_python_udf_inlining(enabled=False)
        if calls is None:
            register_stand_ins(session, self.functions)
        else:
            calls.register(session)
        return session
