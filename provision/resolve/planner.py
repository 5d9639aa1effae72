"""The plan of a request: the newest builds that fit, with the extras that its packages need."""

from __future__ import annotations

import dataclasses

from ..model import Plan, Request, RequestContext
from . import resolve
from .extras import add_extras


def plan_request(context: RequestContext) -> Plan:
    """Return the plan. If no Python of this machine fits, one that uv could download is tried.

    The notes of the plan explain the lines of files on packages that it selects. The others are said to be left out.
    """
    planned = add_extras(_first_fitting(context), context)
    places = [f"({line.origin})" for line in context.request.stack]
    explained = [place for place in places if any(place in note for note in planned.notes)]
    left_out = (said for said in context.demands.left_out if not any(place in said for place in explained))
    return dataclasses.replace(planned, notes=(*planned.notes, *left_out))


def _first_fitting(context: RequestContext) -> Plan:
    planned = _resolved(context, context.request)
    if planned.builds or not context.pythons_known or context.sources.offline:
        return planned
    wider = _resolved(context, dataclasses.replace(context.request, pythons=()))
    return wider if wider.builds else planned


def _resolved(context: RequestContext, request: Request) -> Plan:
    """Return the plan for the target, or the one plan that fits several targets."""
    first, *others = context.targets or (context.target,)
    planned = resolve(request, first, context.profiles, context.supply, others)
    return dataclasses.replace(planned, target=context.target)
