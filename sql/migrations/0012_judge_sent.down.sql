-- Takes 0012 back: scores made since can't be replayed any more.
DROP TABLE judge_sent;
