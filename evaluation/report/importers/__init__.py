"""Results of other tools, converted by the written definitions or marked "not comparable" with the reason.

Where a tool kept its requests, our figures are computed from their times; where it kept sums only, a figure is taken
over when its definition is ours. Percentiles of sums are interpolated by most tools, which differs from ours by less
than the gap between two neighbouring values.
"""
