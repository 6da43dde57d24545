"""The numbers of the protobuf fields of DataFusion 55 that a plan is cut by.

Another major version may number them differently: `tests/contract/test_datafusion_plans.py` checks
each one. Source: datafusion/proto-models/proto/datafusion.proto of Apache DataFusion.
"""

from __future__ import annotations

from typing import Final

PROJECTION_NODE: Final = 4
"""``PhysicalPlanNode.projection``. Its field 1 is the input."""
PARTITIONING: Final = 5
"""``RepartitionExecNode.partitioning``."""
HASH: Final = 2
"""``Partitioning.hash``."""
HASH_KEYS: Final = 1
"""``PhysicalHashRepartition.hash_expr``."""
COALESCE_NODE: Final = 13
"""``PhysicalPlanNode.merge``: coalesces partitions. Its field 1 is the input."""
UNION_NODE: Final = 19
"""``PhysicalPlanNode.union``, whose inputs are those of an interleave."""
SORT_NODE: Final = 10
"""``PhysicalPlanNode.sort``."""
MERGE_NODE: Final = 21
"""``PhysicalPlanNode.sort_preserving_merge``, whose input, expr and fetch are those of a sort."""
SORT_KEYS: Final = 2
"""``SortExecNode.expr``: a key each."""
SORT_FETCH: Final = 3
"""``SortExecNode.fetch``: -1 for all rows."""
ALL_ROWS: Final = 2**64 - 1
"""-1 as a varint."""
SORT_KEY: Final = 10
"""``PhysicalExprNode.sort``, whose fields are the next two."""
SORTED: Final = 1
"""``PhysicalSortExprNode.expr``."""
ASCENDING: Final = 2
NULLS_FIRST: Final = 3
JOIN_ON: Final = 3
"""``HashJoinExecNode.on``: two expressions that are compared."""
JOIN_LEFT: Final = 1
JOIN_RIGHT: Final = 2
CHOSEN_COLUMNS: Final = 9
"""``projection`` of ``HashJoinExecNode`` and ``FilterExecNode``: positions of columns."""
PROJECTION_EXPRESSIONS: Final = 2
"""``ProjectionExecNode.expr``."""
EXPRESSION_NAMES: Final = 3
"""``ProjectionExecNode.expr_name``: the name of each column."""
GROUPS: Final = 1
"""``AggregateExecNode.group_expr``."""
COLUMN: Final = 1
"""``PhysicalExprNode.column``."""
COLUMN_NAME: Final = 1
"""``PhysicalColumn.name``."""
COLUMN_POSITION: Final = 2
"""``PhysicalColumn.index``."""
WINDOW_EXPRESSIONS: Final = 2
"""``WindowAggExecNode.window_expr``."""
WINDOW_AGGREGATE: Final = 3
"""``PhysicalWindowExprNode.user_defined_aggr_function``: its name."""
WINDOW_NAME: Final = 8
"""``PhysicalWindowExprNode.name``: what is computed, as a text."""
WINDOW_FUNCTION: Final = 10
"""``PhysicalWindowExprNode.user_defined_window_function``: its name."""
WINDOW_IGNORES_NULLS: Final = 11
"""``PhysicalWindowExprNode.ignore_nulls``."""
WINDOW_PARTITIONS: Final = 5
"""``WindowAggExecNode.partition_keys``."""
WINDOW_MODES: Final = (7, 8, 9)
"""``WindowAggExecNode.input_order_mode``: linear, partially sorted, or sorted, if it is bounded."""
WINDOW_ORDER: Final = 6
"""``PhysicalWindowExprNode.order_by``: a ``PhysicalSortExprNode`` each."""
SERIES_NODE: Final = 33
"""``PhysicalPlanNode.generate_series``."""
SERIES_SCHEMA: Final = 1
"""``GenerateSeriesNode.schema``: the columns that are used, of the only one."""
SERIES_TIMES: Final = 5
"""``GenerateSeriesNode.timestamp_args``."""
SERIES_ZONE: Final = 4
"""``GenerateSeriesArgsTimestamp.tz``."""
SERIES_DAYS: Final = 6
"""``GenerateSeriesNode.date_args``, which are those of times without a zone as well."""
SCHEMA_COLUMN: Final = 1
"""``Schema.columns``: a ``Field`` each, whose name and type are the next two."""
FIELD_NAME: Final = 1
FIELD_TYPE: Final = 2
INT64_TYPE: Final = 10
"""``ArrowType.INT64``, which has no fields."""
TIMESTAMP_TYPE: Final = 20
"""``ArrowType.TIMESTAMP``, whose unit and zone are the next two."""
TIMESTAMP_UNIT: Final = 1
NANOSECONDS: Final = 3
TIMESTAMP_ZONE: Final = 2
ARROW_SCAN_NODE: Final = 38
"""``PhysicalPlanNode.arrow_scan``, which has nothing but the next field."""
SCAN_CONFIG: Final = 1
"""``base_conf`` of the scan of any format."""
FILE_GROUPS: Final = 1
"""``FileScanExecConf.file_groups``: one for each partition of the scan."""
PROJECTION: Final = 13
"""``FileScanExecConf.projection_exprs``."""
PROJECTED_EXPRESSION: Final = 2
"""``ProjectionExpr.expr``."""
SCAN_PREDICATE: Final = 3
"""``ParquetScanExecNode.predicate``."""
BINARY_EXPRESSION: Final = 3
"""``PhysicalExprNode.binary_expr``, whose fields are the next two."""
OPERATOR: Final = 3
OPERANDS: Final = 4
JOIN_NULLS: Final = 7
"""``HashJoinExecNode.null_equality``: 0 if null equals nothing."""
PROJECTED: Final = 1
"""``ProjectionExprs.projections``: one for each column."""
ALIAS: Final = 1
"""``ProjectionExpr.alias``: the name of the column."""
FILES: Final = 1
"""``FileGroup.files``."""
FILE_PATH: Final = 1
"""``PartitionedFile.path``, without the first slash."""
FILE_SIZE: Final = 2
FILE_MODIFIED: Final = 3
FILE_RANGE: Final = 5
"""``PartitionedFile.range``: the bytes of the file that belong to the group."""
FILE_STATISTICS: Final = 6
"""``PartitionedFile.statistics``, which are of no use once a plan is made."""
