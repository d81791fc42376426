-- Going back is restoring a backup: a schema that has held work is not dropped.
SELECT 1;
