DROP TABLE judge_reservations, judge_spend;
