"""A fast path for repeated calls (:class:`.lane.FastLane`): a compiled function for each kind of call, and an inline
cache for each calling line.
"""
