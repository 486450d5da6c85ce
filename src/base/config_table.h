/* The config table: X(key, name, type, default, sentence), one row a setting.
 * Read from the environment, then $TUTTI_CONF_FILE (else ~/.tutti.conf), then /etc/tutti.conf
 * (lines NAME=VALUE). Types: INT, SIZE (K/M/G suffix), BOOL (0/1), STRING, LEVEL (log level).
 * Printed by tutti-info; docs are made from it. */
/* clang-format off */
X(LOG,            "TUTTI_LOG",            LEVEL,  "WARN",   "What is logged: NONE, WARN, INFO or TRACE.")
X(LOG_FILE,       "TUTTI_LOG_FILE",       STRING, "",       "Where the log goes instead of stderr; %h is the host, %p the pid.")
X(TIMEOUT_MS,     "TUTTI_TIMEOUT_MS",     INT,    "600000", "Deadline of every collective and of finalize, in milliseconds; 0 turns it off.")
X(INIT_TIMEOUT_MS,"TUTTI_INIT_TIMEOUT_MS",INT,    "600000", "Deadline of communicator init, in milliseconds; 0 turns it off.")
X(ALGORITHM,      "TUTTI_ALGORITHM",      STRING, "",       "Forces algorithms: collective:name;... or one name for all, e.g. all_reduce:ring;broadcast:binomial.")
X(TRANSPORT,      "TUTTI_TRANSPORT",      STRING, "",       "Allowed ways between local ranks, comma-separated: shm,window,cma; empty means all that work.")
X(SLOT_BYTES,     "TUTTI_SLOT_BYTES",     SIZE,   "128K",    "Bytes of one slot of a link; one slice of a large message.")
X(SLOTS,          "TUTTI_SLOTS",          INT,    "6",      "Slots of a link (its depth), 2 to 64.")
X(MEET_BYTES,     "TUTTI_MEET_BYTES",     SIZE,   "32K",    "Bytes one rank can put into a meeting (the small-message step of a whole host).")
X(WAIT,           "TUTTI_WAIT",           STRING, "auto",   "How a waiting rank waits: auto, spin, yield.")
X(CPU,            "TUTTI_CPU",            STRING, "",       "Masks CPU features down: scalar, avx2 or avx512; empty means the best there is.")
X(HOST_ID,        "TUTTI_HOST_ID",        STRING, "",       "Overrides the host identity; ranks with different values act as on different hosts.")
X(TOPOLOGY_FILE,  "TUTTI_TOPOLOGY_FILE",  STRING, "",       "hwloc XML to use instead of this machine's topology.")
X(SOCKET_INTERFACE,"TUTTI_SOCKET_INTERFACE",STRING,"",      "Network interface whose address bootstrap listens on; empty picks one.")
X(JOB_KEY,        "TUTTI_JOB_KEY",        STRING, "",       "Secret of a job started from the environment or tcp://: 64 hex digits, the same on all ranks.")
X(INIT_METHOD,    "TUTTI_INIT_METHOD",    STRING, "env://", "How ranks find each other: env://, tcp://host:port or file:///path.")
/* clang-format on */
