BEGIN TRANSACTION;
CREATE TABLE dpsketch_dataset (
	name TEXT NOT NULL,
	format INTEGER NOT NULL,
	rows BIGINT NOT NULL,
	head TEXT NOT NULL,
	PRIMARY KEY (name)
);
INSERT INTO "dpsketch_dataset" VALUES('web',1,5,'1e8d286bd6edc09fbb2db181d1b6c2ad297f28995ddc061d1d6115e29ae331dc');
INSERT INTO "dpsketch_dataset" VALUES('days',2,3,'6e9446551bfe0fd12d3c32d7cd907a057ad055775b251de2e198d9118f6058fc');
INSERT INTO "dpsketch_dataset" VALUES('nobody''s',1,2,'a43cebbb84e7559c03ddb86e40ddb0e44231241e4238e702b67807268fa9c05f');
INSERT INTO "dpsketch_dataset" VALUES('late',1,1,'5fbe9c557e532fdd598fc4e4828366855c1b13c7834c136624ebd860c24ee21f');
CREATE TABLE dpsketch_day (
	stream TEXT NOT NULL,
	day BIGINT NOT NULL,
	dataset TEXT NOT NULL,
	id BIGINT NOT NULL,
	publication TEXT NOT NULL,
	digest TEXT NOT NULL,
	PRIMARY KEY (stream, day)
);
INSERT INTO "dpsketch_day" VALUES('a8b364c33b05237c96e6f0adf95017b75e923acaf3365b815c5ed48e41ab6eff',1,'web',1,'abababababababababababababababababababababababababababababababab','1851ee17296fc20e843d7d3f7ffeb7dda9df53e5c150a46326edb627d7a150e7');
INSERT INTO "dpsketch_day" VALUES('a8b364c33b05237c96e6f0adf95017b75e923acaf3365b815c5ed48e41ab6eff',2,'web',1,'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd','d3c7707c5b08967004d5200b41d5a6ed5a0ac27196e7a74b5f17f3b390454332');
CREATE TABLE dpsketch_delivery (
	dataset TEXT NOT NULL,
	id BIGINT NOT NULL,
	charge TEXT NOT NULL,
	binding TEXT NOT NULL,
	state TEXT NOT NULL,
	digest TEXT NOT NULL,
	PRIMARY KEY (dataset, id)
);
INSERT INTO "dpsketch_delivery" VALUES('web',3,'05c1a8e2965343e4445bc641211b96694059254a1e27624c5734aa13424aa4d0','written','written','435c3be7d5aabeef14e0b22e8041242ebf9b9c21e9d4a80842ba8c8d3fbe30f3');
INSERT INTO "dpsketch_delivery" VALUES('web',4,'1e8d286bd6edc09fbb2db181d1b6c2ad297f28995ddc061d1d6115e29ae331dc','open','charged','e85772789379890ec35fa07d85482e01450cc3e10733a94a4499bc119a9cbe3d');
CREATE TABLE dpsketch_entry (
	dataset TEXT NOT NULL,
	id BIGINT NOT NULL,
	kind TEXT NOT NULL,
	time TEXT NOT NULL,
	costs TEXT NOT NULL,
	total TEXT NOT NULL,
	unit TEXT NOT NULL,
	note TEXT NOT NULL,
	previous TEXT NOT NULL,
	digest TEXT NOT NULL,
	PRIMARY KEY (dataset, id)
);
INSERT INTO "dpsketch_entry" VALUES('web',0,'create','2026-11-16T15:28:29.596176+00:00','[]','{"delta":1e-06,"epsilon":2.0,"rho":null}','{"level":"record","max_keys":1,"max_weight":1,"neighbours":"add_remove"}','','','87e16b9f835ae080b1c5f68f4643fe8b3b55f8f4b4cf2f3f75eb4cf36d02cdc7');
INSERT INTO "dpsketch_entry" VALUES('web',1,'charge','2026-11-16T15:28:29.988481+00:00','[{"kind":"gaussian","mu":0.3}]','null','{"level":"record","max_keys":1,"max_weight":1,"neighbours":"add_remove"}','searches in May; naïve ''quotes'' "and" 文字','87e16b9f835ae080b1c5f68f4643fe8b3b55f8f4b4cf2f3f75eb4cf36d02cdc7','a8b364c33b05237c96e6f0adf95017b75e923acaf3365b815c5ed48e41ab6eff');
INSERT INTO "dpsketch_entry" VALUES('web',2,'charge','2026-11-16T15:28:30.027448+00:00','[{"epsilon":0.125,"kind":"pure"},{"delta":1e-09,"epsilon":0.1,"kind":"approximate"}]','null','{"level":"record","max_keys":1,"max_weight":1,"neighbours":"add_remove"}','','a8b364c33b05237c96e6f0adf95017b75e923acaf3365b815c5ed48e41ab6eff','5d6e359b4046dfb7a567e5c2aaa37a4dcd4d78cffc331b423f17fd67534f7e46');
INSERT INTO "dpsketch_entry" VALUES('days',0,'create','2026-11-16T15:28:30.064650+00:00','[]','{"delta":0,"epsilon":1.0,"parts":{"by":"day","disjoint_users":true},"rho":null}','{"level":"user","max_keys":3,"max_weight":1,"neighbours":"add_remove"}','','','289bd8f503d24d1265b8ef0a14388c4dc66fe6ff9ea04cf09ec4dd3068b1be40');
INSERT INTO "dpsketch_entry" VALUES('days',1,'charge','2026-11-16T15:28:30.110028+00:00','{"costs":[{"epsilon":0.5,"kind":"pure"}],"part":"2026-11-01"}','null','{"level":"user","max_keys":3,"max_weight":1,"neighbours":"add_remove"}','','289bd8f503d24d1265b8ef0a14388c4dc66fe6ff9ea04cf09ec4dd3068b1be40','e7871969f490747baccd9160506cf8811bd027e42202a8426bc7fdde8a93feb4');
INSERT INTO "dpsketch_entry" VALUES('days',2,'charge','2026-11-16T15:28:30.145343+00:00','{"costs":[{"epsilon":0.25,"kind":"pure"}],"part":"2026-11-02"}','null','{"level":"user","max_keys":5,"max_weight":1,"neighbours":"add_remove"}','','e7871969f490747baccd9160506cf8811bd027e42202a8426bc7fdde8a93feb4','6e9446551bfe0fd12d3c32d7cd907a057ad055775b251de2e198d9118f6058fc');
INSERT INTO "dpsketch_entry" VALUES('web',3,'charge','2026-11-16T15:28:30.178023+00:00','[{"epsilon":0.0625,"kind":"pure"}]','null','{"level":"record","max_keys":1,"max_weight":1,"neighbours":"add_remove"}','','5d6e359b4046dfb7a567e5c2aaa37a4dcd4d78cffc331b423f17fd67534f7e46','05c1a8e2965343e4445bc641211b96694059254a1e27624c5734aa13424aa4d0');
INSERT INTO "dpsketch_entry" VALUES('web',4,'charge','2026-11-16T15:28:30.257415+00:00','[{"epsilon":0.03125,"kind":"pure"}]','null','{"level":"record","max_keys":1,"max_weight":1,"neighbours":"add_remove"}','open','05c1a8e2965343e4445bc641211b96694059254a1e27624c5734aa13424aa4d0','1e8d286bd6edc09fbb2db181d1b6c2ad297f28995ddc061d1d6115e29ae331dc');
INSERT INTO "dpsketch_entry" VALUES('nobody''s',0,'create','2026-11-16T15:28:30.408612+00:00','[]','null','{"level":"record","max_keys":1,"max_weight":1,"neighbours":"add_remove"}','','','d118ceb3bb84a2e831603502130f692725529ee55a1ec76514bcdf12d3104fc4');
INSERT INTO "dpsketch_entry" VALUES('nobody''s',1,'charge','2026-11-16T15:28:30.409195+00:00','[{"kind":"zcdp","rho":0.1},{"kind":"moment","p":0.5,"ratio":2,"size":100}]','null','{"level":"record","max_keys":1,"max_weight":1,"neighbours":"add_remove"}','','d118ceb3bb84a2e831603502130f692725529ee55a1ec76514bcdf12d3104fc4','a43cebbb84e7559c03ddb86e40ddb0e44231241e4238e702b67807268fa9c05f');
INSERT INTO "dpsketch_entry" VALUES('late',0,'create','2026-11-16T15:28:30.432282+00:00','[]','{"delta":null,"epsilon":null,"rho":0.5}','{"level":"record","max_keys":1,"max_weight":1,"neighbours":"add_remove"}','','','5fbe9c557e532fdd598fc4e4828366855c1b13c7834c136624ebd860c24ee21f');
CREATE TABLE dpsketch_member (
	dataset TEXT NOT NULL,
	name TEXT NOT NULL,
	part TEXT NOT NULL,
	id BIGINT NOT NULL,
	charge TEXT NOT NULL,
	digest TEXT NOT NULL,
	PRIMARY KEY (dataset, name)
);
INSERT INTO "dpsketch_member" VALUES('days','one','2026-11-01',1,'e7871969f490747baccd9160506cf8811bd027e42202a8426bc7fdde8a93feb4','1382efd48fd1bd39dacf2e0777007f41c97265439679eafd53f43208656ed4be');
INSERT INTO "dpsketch_member" VALUES('days','two','2026-11-01',1,'e7871969f490747baccd9160506cf8811bd027e42202a8426bc7fdde8a93feb4','5bcd9a71e8e47163561fe917b59bfc398a640e66be59c8f02d03a85f9d8b5050');
INSERT INTO "dpsketch_member" VALUES('days','three','2026-11-02',2,'6e9446551bfe0fd12d3c32d7cd907a057ad055775b251de2e198d9118f6058fc','311ed25867cbc7acf78326873a77cee7b29c8422d8c89107d50cb538995125a7');
CREATE TABLE dpsketch_once (
	name TEXT NOT NULL,
	dataset TEXT NOT NULL,
	id BIGINT NOT NULL,
	charge TEXT NOT NULL,
	digest TEXT NOT NULL,
	PRIMARY KEY (name)
);
INSERT INTO "dpsketch_once" VALUES('secret','web',2,'5d6e359b4046dfb7a567e5c2aaa37a4dcd4d78cffc331b423f17fd67534f7e46','e045ef6074719da6ecfdebc7af8aac357a7026b85262c3ee1768bdcf580c793c');
CREATE TABLE dpsketch_origin (
	dataset TEXT NOT NULL,
	id BIGINT NOT NULL,
	charge TEXT NOT NULL,
	output TEXT NOT NULL,
	columns TEXT NOT NULL,
	who TEXT NOT NULL,
	digest TEXT NOT NULL,
	PRIMARY KEY (dataset, id)
);
INSERT INTO "dpsketch_origin" VALUES('web',3,'05c1a8e2965343e4445bc641211b96694059254a1e27624c5734aa13424aa4d0','out.dps','key url','ana','63e06a728d3f1f495bf5158b25480680408d37377cc0da8773bc4850776ae2a3');
INSERT INTO "dpsketch_origin" VALUES('web',4,'1e8d286bd6edc09fbb2db181d1b6c2ad297f28995ddc061d1d6115e29ae331dc','other.dps','','','064be14082d8268cc5bee5bd8abf736d1922ea836000e6101b79e973d3f1d2da');
CREATE TABLE dpsketch_source (
	source TEXT NOT NULL,
	dataset TEXT NOT NULL,
	PRIMARY KEY (source)
);
INSERT INTO "dpsketch_source" VALUES('digest of a place','web');
COMMIT;
