COMMENT ON COLUMN outbox.headers IS 'Record headers in order, duplicates kept: for each name and value its length as 4 bytes big-endian, then its bytes; a length of -1: no value';
COMMENT ON COLUMN dead_letters.headers IS 'Record headers in order, duplicates kept: for each name and value its length as 4 bytes big-endian, then its bytes; a length of -1: no value'
