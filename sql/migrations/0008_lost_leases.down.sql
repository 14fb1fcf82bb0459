-- Takes 0008 back.
DROP INDEX score_requests_lost;
