-- What the example protects. Run as whoever owns the application's tables, after tenure's schema is installed.
CREATE TABLE report (
	name    text   NOT NULL,
	line    int    NOT NULL,
	made_by text   NOT NULL,
	token   bigint NOT NULL,
	PRIMARY KEY (name, line)
);
GRANT SELECT, INSERT ON report TO worker;

-- What protect.sql protects.
CREATE TABLE stock (item text PRIMARY KEY, on_hand int NOT NULL);
INSERT INTO stock VALUES ('lamp', 7), ('chair', 3);
GRANT SELECT, INSERT, UPDATE, DELETE ON stock TO worker;
