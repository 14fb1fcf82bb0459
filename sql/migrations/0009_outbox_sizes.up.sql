-- A page of the outbox ends by its bytes, which are told without reading them: of headers that are
-- compressed that would be too few.
ALTER TABLE outbox ALTER COLUMN headers SET STORAGE EXTERNAL;
