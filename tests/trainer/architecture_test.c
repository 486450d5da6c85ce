/* The tables of the architectures: whole, and with the names that Hugging Face's files have. */
#include "../../trainer/model/model.h"

#include <string.h>

#include "../../trainer/config.h"
#include "shim.h"

static const struct tr_tensor_row *find(const struct tr_architecture *architecture,
                                        enum tr_role role)
{
    for (int kind = 0; kind < TR_NUM_UNIT_KINDS; ++kind)
        for (int i = 0; i < architecture->units[kind].n; ++i)
            if (architecture->units[kind].rows[i].role == role)
                return &architecture->units[kind].rows[i];
    return NULL;
}

TEST(architecture, every_role_has_one_row_at_most_and_the_necessary_ones_have_one)
{
    static const enum tr_role needed[] = {TR_TOKEN_W, TR_NORM1_W, TR_Q_W,     TR_K_W,
                                          TR_V_W,     TR_PROJ_W,  TR_NORM2_W, TR_UP_W,
                                          TR_DOWN_W,  TR_NORM_W,  TR_HEAD_W};
    for (int m = 0; m < TR_NUM_MODELS; ++m) {
        const struct tr_architecture *architecture = tr_architectures[m];
        int rows[TR_NUM_ROLES] = {0};
        for (int kind = 0; kind < TR_NUM_UNIT_KINDS; ++kind)
            for (int i = 0; i < architecture->units[kind].n; ++i)
                rows[architecture->units[kind].rows[i].role]++;
        for (int role = 0; role < TR_NUM_ROLES; ++role)
            CHECK_MESSAGE(rows[role] <= 1, "%s: role %d has %d rows", architecture->title, role,
                          rows[role]);
        for (size_t i = 0; i < sizeof needed / sizeof needed[0]; ++i)
            CHECK_MESSAGE(rows[needed[i]] == 1, "%s has no tensor of role %d", architecture->title,
                          (int)needed[i]);
        CHECK(architecture->gated == (rows[TR_GATE_W] == 1));
    }
}

TEST(architecture, model_chooses_the_architecture_of_its_name)
{
    static const struct {
        const char *name;
        const struct tr_architecture *architecture;
    } cases[] = {{"gpt2", &tr_gpt2}, {"llama", &tr_llama}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        static struct tr_config config;
        tr_config_init(&config);
        REQUIRE(tr_config_set(&config, "model", cases[i].name, TR_FROM_COMMAND_LINE) == TR_OK);
        CHECK(tr_architectures[config.model] == cases[i].architecture);
    }
}

/* Names that GPT2LMHeadModel and LlamaForCausalLM save, where a checkpoint is read in thirds (part
 * 1 to 3) or turned. */
TEST(architecture, tensors_have_the_names_of_the_hub)
{
    static const struct {
        const struct tr_architecture *architecture;
        enum tr_role role;
        struct tr_hub_name hub;
    } cases[] = {
        {&tr_gpt2, TR_TOKEN_W, {"transformer.wte.weight", false, 0}},
        {&tr_gpt2, TR_PLACE_W, {"transformer.wpe.weight", false, 0}},
        {&tr_gpt2, TR_V_W, {"transformer.h.%ld.attn.c_attn.weight", true, 3}},
        {&tr_gpt2, TR_K_B, {"transformer.h.%ld.attn.c_attn.bias", false, 2}},
        {&tr_gpt2, TR_DOWN_W, {"transformer.h.%ld.mlp.c_proj.weight", true, 0}},
        {&tr_gpt2, TR_NORM_B, {"transformer.ln_f.bias", false, 0}},
        {&tr_llama, TR_TOKEN_W, {"model.embed_tokens.weight", false, 0}},
        {&tr_llama, TR_K_W, {"model.layers.%ld.self_attn.k_proj.weight", false, 0}},
        {&tr_llama, TR_NORM2_W, {"model.layers.%ld.post_attention_layernorm.weight", false, 0}},
        {&tr_llama, TR_GATE_W, {"model.layers.%ld.mlp.gate_proj.weight", false, 0}},
        {&tr_llama, TR_HEAD_W, {"lm_head.weight", false, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        const struct tr_tensor_row *row = find(cases[i].architecture, cases[i].role);
        REQUIRE(row);
        CHECK_MESSAGE(!strcmp(row->hub.name, cases[i].hub.name), "%s is %s, expected %s", row->name,
                      row->hub.name, cases[i].hub.name);
        CHECK(row->hub.transposed == cases[i].hub.transposed && row->hub.part == cases[i].hub.part);
    }
    /* No two tensors come from the same place of a file. */
    for (int m = 0; m < TR_NUM_MODELS; ++m)
        for (int a = 0; a < TR_NUM_ROLES; ++a)
            for (int b = 0; b < a; ++b) {
                const struct tr_tensor_row *one = find(tr_architectures[m], (enum tr_role)a),
                                           *other = find(tr_architectures[m], (enum tr_role)b);
                if (one && other)
                    CHECK(strcmp(one->hub.name, other->hub.name) ||
                          one->hub.part != other->hub.part);
            }
}
