/* What DeepSpeed takes for a key of optimizer.params that the file leaves out (ops/adam, ops/lamb,
 * torch.optim.SGD, runtime/zero/muon). An optimizer without a row is refused: its defaults there
 * are not known. Included by deepspeed_optimizer.c alone. */
static const struct {
    const char *optimizer, *key, *option, *value;
} defaults[] = {
    {"adamw", "lr", "lr", "1e-3"},
    {"adamw", "betas", "beta1", "0.9"},
    {"adamw", "betas", "beta2", "0.999"},
    {"adamw", "eps", "eps", "1e-8"},
    {"adamw", "weight_decay", "decay", "0"},
    {"lamb", "lr", "lr", "1e-3"},
    {"lamb", "betas", "beta1", "0.9"},
    {"lamb", "betas", "beta2", "0.999"},
    {"lamb", "eps", "eps", "1e-8"},
    {"lamb", "weight_decay", "decay", "0"},
    {"lamb", "max_coeff", "trust-max", "10"},
    {"lamb", "min_coeff", "trust-min", "0.01"},
    {"sgd", "lr", "lr", "1e-3"},
    {"sgd", "momentum", "momentum", "0"},
    {"sgd", "weight_decay", "decay", "0"},
    {"muon", "momentum", "momentum", "0.95"},
    {"muon", "betas", "beta1", "0.9"},
    {"muon", "betas", "beta2", "0.95"},
    {"muon", "eps", "eps", "1e-10"},
    {"muon", "weight_decay", "decay", "0"},
    {"muon", "adjust_lr", "adjust-lr", "original"},
};
