/* The config table: X(key, name, nccl, type, default, sentence), one row a setting.
 * nccl: the variables of NCCL that set the row too, comma-separated, where tuttiUseNcclSettings was
 * called (nccl_settings.h); the first that is given names the row in messages.
 * Read from the environment, then $TUTTI_CONF_FILE (else ~/.tutti.conf), then /etc/tutti.conf
 * (lines NAME=VALUE). Types: INT, SIZE (K/M/G suffix), BOOL (1/0, true/false, yes/no, on/off), AUTO
 * (auto, or as BOOL), REQUIRE (require, or as BOOL), STRING, LEVEL (log level).
 * A row SECURITY(...) is X(...) of a setting that protects the job: no communicator is made while
 * its value is not understood. Printed by tutti-info; docs are made from it. */
#ifndef SECURITY
#define SECURITY X
#endif
/* clang-format off */
X(LOG,                  "TUTTI_LOG",                 "NCCL_DEBUG",           LEVEL,   "WARN",  "What is logged: NONE, WARN or INFO.")
X(LOG_FILE,             "TUTTI_LOG_FILE",            "NCCL_DEBUG_FILE",      STRING,  "",      "Where the log goes instead of stderr; %h is the host, %p the pid, %% a %.")
X(LOG_SUBSYSTEMS,       "TUTTI_LOG_SUBSYSTEMS",      "NCCL_DEBUG_SUBSYS",    STRING,  "",      "Whose lines are logged at INFO, comma-separated: INIT, BOOTSTRAP, ENV, NET, SHM, P2P, COLL, TUNING, GRAPH; ^ before the first: all others; empty: all.")
X(TIMEOUT_MS,           "TUTTI_TIMEOUT_MS",          "",                     INT,     "600000", "Deadline of every collective and of finalize, in milliseconds; 0 turns it off: then only a failed call, which waits for ranks that use its buffers, gives up, after 10 s.")
X(INIT_TIMEOUT_MS,      "TUTTI_INIT_TIMEOUT_MS",     "",                     INT,     "600000", "Deadline of communicator init, in milliseconds; 0 turns it off.")
X(LATE_MS,              "TUTTI_LATE_MS",             "",                     INT,     "0",     "After how long in one wait, in milliseconds, a warning names the call and the ranks that have not come, then each time the wait has lasted twice as long; 0: never; an init warns after 10 s at the latest.")
X(COMPUTE_THREADS,      "TUTTI_COMPUTE_THREADS",     "",                     INT,     "1",     "With how many threads each rank computes: where the host has no core left beside these for each rank, the thread that waits for a call on a stream runs the call, or a thread of the stream does after 0.2 to 1.6 ms.")
X(ALGORITHM,            "TUTTI_ALGORITHM",           "NCCL_ALGO",            STRING,  "",      "Forces algorithms: collective:name;... or one name for all, e.g. all_reduce:ring;broadcast:binomial.")
X(COST_FILE,            "TUTTI_COST_FILE",           "",                     STRING,  "",      "File of constants of the cost model, by which algorithms are chosen, in place of the shipped ones; the same on all ranks; tutti-plan tune writes it.")
X(DETERMINISTIC,        "TUTTI_DETERMINISTIC",       "",                     BOOL,    "0",     "Reductions fold in rank order, whatever the size, algorithm and placement, so that results have the same bits; the same on all ranks.")
X(TRANSPORT,            "TUTTI_TRANSPORT",           "NCCL_NET,NCCL_IB_DISABLE,NCCL_P2P_DISABLE,NCCL_P2P_LEVEL", STRING,  "",      "Allowed transports, comma-separated: shm,window,cma between local ranks, tcp,rdma between hosts; where none is named inside a host, shm and window; between hosts, all that work.")
X(SLOT_BYTES,           "TUTTI_SLOT_BYTES",          "",                     SIZE,    "128K",  "Bytes of one slot of a link; one piece of a large message.")
X(SLOTS,                "TUTTI_SLOTS",               "",                     INT,     "0",     "Slots of a link (its depth), 2 to 64; 0: 16 inside a host, down to 6 where links would take more than 1 GiB or than a limit of memory or files of a rank allows, 6 between hosts; over TCP and RDMA a channel carries at most slots x slot bytes in a round trip, so long round trips need more.")
X(CHANNELS,             "TUTTI_CHANNELS",            "",                     INT,     "2",     "Channels between every two ranks for collectives, 2 to 16, the same on all ranks; each has links of its own, and point to point has one more.")
X(COPIES,               "TUTTI_COPIES",              "",                     INT,     "1",     "Most copies of a collective's algorithm that run side by side, 1 to 16, the same on all ranks; each needs 1 or 2 of TUTTI_CHANNELS, and at least 64 bytes of a block for each of these; calls of less than 8 KiB run once.")
X(DEVICE_KERNELS,       "TUTTI_DEVICE_KERNELS",      "NCCL_P2P_DISABLE,NCCL_P2P_LEVEL", REQUIRE, "1",     "Calls on GPU memory run as kernels; off on any rank: through memory of the host; require: where kernels cannot run, the init of a rank that has a GPU fails and says why.")
X(DEVICE_CHANNELS,      "TUTTI_DEVICE_CHANNELS",     "NCCL_MAX_CTAS,NCCL_MIN_CTAS,NCCL_MAX_NCHANNELS,NCCL_MIN_NCHANNELS,NCCL_MAX_NRINGS,NCCL_MIN_NRINGS", INT,     "32",    "Channels between every two ranks on GPUs for collectives, 2 to 64, the same on all ranks; a call runs at most as many blocks on a GPU.")
X(DEVICE_THREADS,       "TUTTI_DEVICE_THREADS",      "NCCL_NTHREADS",        INT,     "512",   "Threads of each block on a GPU: a multiple of 32, 32 to 512.")
X(DEVICE_SLOTS,         "TUTTI_DEVICE_SLOTS",        "",                     INT,     "4",     "Slots of a link between two GPUs, or two ranks of a GPU: a power of two, 2 to 64, the same on all ranks; each link has as many slots and as many times the lines of a message.")
X(DEVICE_SLOT_BYTES,    "TUTTI_DEVICE_SLOT_BYTES",   "",                     SIZE,    "128K",  "Bytes of one slot of a link between GPUs, a multiple of 16, the same on all ranks; many ranks and channels make it smaller, so that all links of a rank take at most 256 MiB of its GPU.")
X(DEVICE_LINE_BYTES,    "TUTTI_DEVICE_LINE_BYTES",   "",                     SIZE,    "32K",   "Bytes of the lines of one message between GPUs, a multiple of 16, the same on all ranks: half of them is data, the other half flags; for short messages.")
X(DEVICE_BRIDGES,       "TUTTI_DEVICE_BRIDGES",      "",                     BOOL,    "1",     "Calls on GPU memory run as kernels also where ranks are on several hosts, or some have no GPU: a thread of each rank with a GPU moves messages; off: through memory of the host. The same on all ranks.")
X(DEVICE_IN_PLACE,      "TUTTI_DEVICE_IN_PLACE",     "",                     AUTO,    "0",     "New; on at sender and receiver: kernels read messages of other GPUs, and of other processes of the host, in the sender's memory where that was registered (tuttiCommRegister) or is of tuttiDeviceMemAlloc; auto: other processes only the latter; off at either: they are copied.")
X(MPS,                  "TUTTI_MPS",                 "",                     AUTO,    "auto",  "Whether processes that share a GPU run kernels there at the same time, as clients of NVIDIA's MPS: auto looks for the socket of its daemon in CUDA_MPS_PIPE_DIRECTORY (/tmp/nvidia-mps).")
X(MEET_BYTES,           "TUTTI_MEET_BYTES",          "",                     SIZE,    "32K",   "Bytes one rank can put into a meeting (the small-message step of a whole host).")
X(WAIT,                 "TUTTI_WAIT",                "",                     STRING,  "auto",  "How a waiting rank waits: auto, spin, yield.")
X(CPU,                  "TUTTI_CPU",                 "",                     STRING,  "",      "Masks CPU features down: scalar, avx2 or avx512; empty means the best there is.")
X(HOST_ID,              "TUTTI_HOST_ID",             "NCCL_HOSTID,NCCL_SHM_DISABLE,NCCL_P2P_DISABLE,NCCL_P2P_LEVEL", STRING,  "",      "Overrides the host identity; ranks with different values act as on different hosts.")
X(TOPOLOGY_FILE,        "TUTTI_TOPOLOGY_FILE",       "",                     STRING,  "",      "hwloc XML to use instead of this machine's topology.")
X(SOCKET_INTERFACE,     "TUTTI_SOCKET_INTERFACE",    "NCCL_SOCKET_IFNAME",   STRING,  "",      "Network interfaces for bootstrap and TCP: names or their beginnings, comma-separated (eth,ib0); =eth0 exactly; ^eth1 all others; empty picks them.")
X(SOCKET_FAMILY,        "TUTTI_SOCKET_FAMILY",       "NCCL_SOCKET_FAMILY",   STRING,  "auto",  "Address family between hosts: auto (IPv4 where there is a choice), 4 or 6.")
X(SOCKETS,              "TUTTI_SOCKETS",             "NCCL_NSOCKS_PERTHREAD,NCCL_SOCKET_NTHREADS", INT,     "1",     "TCP connections of a pair of ranks over each interface, 1 to 16.")
X(ZEROCOPY,             "TUTTI_ZEROCOPY",            "",                     AUTO,    "auto",  "Large TCP messages from the caller's memory without the kernel's copy: auto (where the interface can), on or off.")
SECURITY(ENCRYPT,       "TUTTI_ENCRYPT",             "NCCL_PSK",             BOOL,    "0",     "Encrypts data between hosts (TLS over TCP, keyed by the unique id; RDMA is not used then).")
X(NET_TIMEOUT_MS,       "TUTTI_NET_TIMEOUT_MS",      "",                     INT,     "20000", "How long a peer on another host may be unreachable before its connection counts as broken, in milliseconds.")
X(RDMA_DEVICE,          "TUTTI_RDMA_DEVICE",         "NCCL_IB_HCA",          STRING,  "",      "RDMA devices and ports: names or their beginnings (mlx5,rxe0:1); =mlx5_0 exactly; ^mlx5_1 all others; empty takes the nearest.")
X(RDMA_GID_INDEX,       "TUTTI_RDMA_GID_INDEX",      "NCCL_IB_GID_INDEX",    INT,     "-1",    "GID of an RDMA port; -1 chooses (RoCE v2, IPv4 before IPv6).")
X(RDMA_SERVICE_LEVEL,   "TUTTI_RDMA_SERVICE_LEVEL",  "NCCL_IB_SL",           INT,     "0",     "RDMA service level, 0 to 15.")
X(RDMA_TRAFFIC_CLASS,   "TUTTI_RDMA_TRAFFIC_CLASS",  "NCCL_IB_TC",           INT,     "0",     "RDMA traffic class (RoCE: DSCP and ECN), 0 to 255.")
X(RDMA_TIMEOUT,         "TUTTI_RDMA_TIMEOUT",        "NCCL_IB_TIMEOUT",      INT,     "14",    "RDMA acknowledgement timeout, 4.096 us times 2 to this power, 1 to 31.")
X(RDMA_GPU,             "TUTTI_RDMA_GPU",            "NCCL_DMABUF_ENABLE,NCCL_NET_GDR_LEVEL", BOOL,    "1",     "RDMA devices move what kernels send to other hosts from memory of one GPU to that of the other, where devices and drivers of both ranks can (dma-buf); off on either: through memory of the host.")
X(RDMA_RETRIES,         "TUTTI_RDMA_RETRIES",        "NCCL_IB_RETRY_CNT",    INT,     "6",     "How often RDMA sends again before a connection counts as broken, 0 to 6 (7 would be for ever).")
SECURITY(JOB_KEY,       "TUTTI_JOB_KEY",             "",                     STRING,  "",      "Secret of a job started from the environment or tcp://: 64 hex digits, the same on all ranks.")
X(INIT_METHOD,          "TUTTI_INIT_METHOD",         "NCCL_COMM_ID",         STRING,  "env://", "How ranks find each other: env://, tcp://host:port or file:///path.")
/* clang-format on */
#undef SECURITY
