/* The trainer's options, one row each: NUMBER(TYPE, field, "name", "default", lowest, highest,
 * GROUP, "sentence") with TYPE INT or REAL, CHOICE(field, "name", "default", "choice|choice",
 * GROUP, "sentence"), whose field is the place of the choice in the list, and TEXT(field, "name",
 * "default", GROUP, "sentence"). One row serves --name=value, the JSON file, --help, the printed
 * table, the checkpoint and the docs. GROUP MODEL: fixed by a checkpoint (as is the
 * optimizer), must be the same when resuming; RUN: belongs to one run and is not restored from a
 * checkpoint. */
/* clang-format off */
CHOICE(     model,       "model",        "gpt2", "gpt2|llama", MODEL, "Architecture.")
NUMBER(INT, layers,      "layers",       "2",     1, 1000,    MODEL,    "Transformer blocks.")
NUMBER(INT, heads,       "heads",        "4",     1, 1024,    MODEL,    "Attention heads; must divide the width.")
NUMBER(INT, kv_heads,    "kv-heads",     "0",     0, 1024,    MODEL,    "Heads of keys and values, each shared by heads/kv-heads heads; 0 means as many as heads.")
NUMBER(INT, width,       "width",        "192",   1, 65536,   MODEL,    "Floats per token between blocks.")
NUMBER(INT, hidden,      "hidden",       "0",     0, 1048576, MODEL,    "Floats per token inside the MLP; 0 means 4 x width, Llama 8/3 x width rounded up to 16.")
NUMBER(INT, vocabulary,  "vocabulary",   "256",   256, 16777216, MODEL, "Different tokens; bytes are tokens 0 to 255.")
NUMBER(INT, context,     "context",      "128",   1, 1048576, MODEL,    "Tokens (bytes) of a sequence.")
CHOICE(     tied,        "tied",         "auto", "auto|on|off", MODEL,  "Whether the head is the embedding's table; auto means on for gpt2, off for llama.")
NUMBER(INT, batch,       "batch",        "16",    1, 1048576, TRAIN,    "Sequences of a step, over all ranks.")
NUMBER(INT, micro_batch, "micro-batch",  "8",     1, 65536,   TRAIN,    "Sequences one rank computes at a time; bounds the activations' memory.")
NUMBER(INT, steps,       "steps",        "0",     0, 1e12,    TRAIN,    "Optimizer steps, those before --resume included; 0 means 2000, or as many as fit in --seconds.")
NUMBER(REAL,seconds,     "seconds",      "0",     0, 1e9,     RUN,      "Stop after this time; the learning rate follows the clock then. 0 means no limit.")
CHOICE(     optimizer,   "optimizer",    "adamw", "adamw|sgd", TRAIN,   "Rule by which gradients change weights.")
NUMBER(REAL,lr,          "lr",           "0.002", 0, 100,     TRAIN,    "Highest learning rate.")
NUMBER(REAL,min_lr,      "min-lr",       "0.05",  0, 1,       TRAIN,    "Last learning rate as a share of the highest.")
NUMBER(INT, warmup,      "warmup",       "50",    0, 1e9,     TRAIN,    "Steps over which the learning rate rises.")
NUMBER(REAL,beta1,       "beta1",        "0.9",   0, 0.999999, TRAIN,   "AdamW: share of the gradient's running mean that a step keeps.")
NUMBER(REAL,beta2,       "beta2",        "0.99",  0, 0.9999999, TRAIN,  "AdamW: share of its square's running mean that a step keeps.")
NUMBER(REAL,eps,         "eps",          "1e-8",  1e-30, 1,   TRAIN,    "AdamW: added to the root of the mean square.")
NUMBER(REAL,momentum,    "momentum",     "0.9",   0, 0.999999, TRAIN,   "SGD: share of the last step that is kept.")
NUMBER(REAL,decay,       "decay",        "0.1",   0, 10,      TRAIN,    "Decoupled weight decay of the matrices.")
NUMBER(REAL,clip,        "clip",         "1",     0, 1e30,    TRAIN,    "Largest gradient norm; 0 turns clipping off.")
NUMBER(INT, seed,        "seed",         "1",     0, 1e15,    TRAIN,    "Seed of the weights, the order of the data and the sample.")
TEXT(       data,        "data",         "",                  TRAIN,    "A file or a folder of text; empty means the sources of tutti itself.")
NUMBER(REAL,held_out,    "held-out",     "5",     0, 50,      TRAIN,    "Percent of the data, at its end, kept for the validation loss.")
NUMBER(INT, pp,          "pp",           "1",     1, 1024,    PARALLEL, "Pipeline stages, each with some of the layers.")
NUMBER(INT, dp,          "dp",           "0",     0, 65536,   PARALLEL, "Replicas with sequences of their own; 0 means all ranks that the other axes leave.")
NUMBER(INT, fsdp,        "fsdp",         "1",     1, 65536,   PARALLEL, "Ranks with sequences of their own that shard weights, gradients and optimizer (with ring and ulysses).")
NUMBER(INT, ring,        "ring",         "1",     1, 1024,    PARALLEL, "Ranks that cut each sequence and pass keys and values around.")
NUMBER(INT, ulysses,     "ulysses",      "1",     1, 1024,    PARALLEL, "Ranks that cut each sequence and exchange tokens for heads.")
NUMBER(INT, tp,          "tp",           "1",     1, 1024,    PARALLEL, "Ranks that cut every matrix and the heads.")
NUMBER(INT, zero,        "zero",         "0",     0, 3,       PARALLEL, "Shard over dp x ring x ulysses: 1 the optimizer, 2 gradients too, 3 weights too (fsdp takes dp's ranks).")
CHOICE(     reduce,      "reduce",       "each", "each|last", PARALLEL, "Sharded gradients: reduce after each micro-batch, or keep whole ones and reduce after the last.")
CHOICE(     reshard,     "reshard",      "auto", "auto|always", PARALLEL, "Sharded weights with pp: auto keeps them whole for a step, always gathers for every use.")
CHOICE(     pipeline,    "pipeline",     "1f1b", "gpipe|1f1b", PARALLEL, "Order of the micro-batches in the pipeline.")
CHOICE(     ring_order,  "ring-order",   "zigzag", "contiguous|zigzag", PARALLEL, "Which tokens a rank of the ring has; zigzag gives all the same work.")
CHOICE(     deterministic, "deterministic", "off", "off|on",  PARALLEL, "Reductions add in the order of the ranks: the same bits for every way of sharding, but slower.")
NUMBER(INT, bucket_kib,  "bucket-kib",   "256",   1, 4194304, PARALLEL, "KiB of gradients reduced at a time while the backward pass runs.")
NUMBER(INT, threads,     "threads",      "0",     0, 4096,    PARALLEL, "Threads that a rank computes with, which changes no bit; 0 means the cores that it may use, divided by the ranks that share them.")
TEXT(       cpu,         "cpu",          "",                  PARALLEL, "Newest vector code to use: v4 (AVX-512), v3 (AVX2) or baseline; empty means the best there is.")
NUMBER(INT, ranks,       "ranks",        "0",     0, 65536,   RUN,      "With --plan: ranks to plan for; 0 means those that were started.")
TEXT(       checkpoint,  "checkpoint",   "",                  RUN,      "Folder to write checkpoints to; empty means none.")
NUMBER(INT, every,       "every",        "0",     0, 1e12,    RUN,      "Steps between checkpoints; 0 means one at the end.")
TEXT(       resume,      "resume",       "",                  RUN,      "Checkpoint to go on from: a file, or a folder whose newest is taken.")
NUMBER(INT, log_every,   "log-every",    "20",    1, 1e9,     RUN,      "Steps between progress lines.")
TEXT(       log,         "log",          "",                  RUN,      "File for one line of JSON per step.")
NUMBER(INT, sample,      "sample",       "400",   0, 1e9,     RUN,      "Bytes of text to sample at the end; 0 means none.")
NUMBER(REAL,temperature, "temperature",  "0.7",   0, 100,     RUN,      "Temperature of the sample; 0 always takes the likeliest byte.")
TEXT(       prompt,      "prompt",       "",                  RUN,      "Text that the sample continues; empty means the beginning of the held-out part.")
/* clang-format on */
#undef NUMBER
#undef CHOICE
#undef TEXT
