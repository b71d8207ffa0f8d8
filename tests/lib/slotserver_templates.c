/* The shapes of the real bodies, of which only a few values change. Taken from recorded answers. */
#include "tests/lib/slotserver_templates.h"

const char *const template_settings_new =
    "{\"seed\":4294967295,\"temperature\":0.0,\"dynatemp_range\":0.0,\"dynatemp_exponent\":1."
    "0,\"top_k\":40,\"top_p\":0.949999988079071,\"min_p\":0.05000000074505806,\"top_n_sigma\""
    ":-1.0,\"xtc_probability\":0.0,\"xtc_threshold\":0.10000000149011612,\"typical_p\":1.0,\""
    "repeat_last_n\":64,\"repeat_penalty\":1.0,\"presence_penalty\":0.0,\"frequency_penalty\""
    ":0.0,\"dry_multiplier\":0.0,\"dry_base\":1.75,\"dry_allowed_length\":2,\"dry_penalty_las"
    "t_n\":64,\"dry_sequence_breakers\":[\"\\n\",\":\",\"\\\"\",\"*\"],\"mirostat\":0,\"miros"
    "tat_tau\":5.0,\"mirostat_eta\":0.10000000149011612,\"adaptive_target\":-1.0,\"adaptive_d"
    "ecay\":0.8999999761581421,\"stop\":[],\"max_tokens\":8,\"n_predict\":8,\"n_keep\":0,\"n_"
    "discard\":0,\"ignore_eos\":true,\"stream\":false,\"logit_bias\":[{\"bias\":null,\"token"
    "\":2}],\"n_probs\":0,\"min_keep\":0,\"grammar\":\"\",\"grammar_lazy\":false,\"grammar_tr"
    "iggers\":[],\"preserved_tokens\":[],\"chat_format\":\"Content-only\",\"reasoning_format"
    "\":\"deepseek\",\"reasoning_in_content\":false,\"generation_prompt\":\"\",\"samplers\":["
    "\"penalties\",\"dry\",\"top_n_sigma\",\"top_k\",\"typ_p\",\"top_p\",\"min_p\",\"xtc\",\""
    "temperature\"],\"speculative.types\":\"none\",\"timings_per_token\":false,\"post_samplin"
    "g_probs\":false,\"backend_sampling\":false,\"lora\":[]}";

const char *const template_props_new =
    "{\"default_generation_settings\":{\"params\":{},\"n_ctx\":131072},\"total_slots\":1,\"mo"
    "del_alias\":\"/models/tiny.gguf\",\"model_ftype\":\"F16\",\"model_path\":\"/models/tiny."
    "gguf\",\"modalities\":{\"vision\":false,\"video\":false,\"audio\":false},\"media_marker"
    "\":\"<__media_ciwsfFse0pMLzTuTDyq8uZKxvj1GStoU__>\",\"endpoint_slots\":true,\"endpoint_p"
    "rops\":false,\"endpoint_metrics\":true,\"ui\":true,\"ui_settings\":{},\"chat_template\":"
    "\"{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '\\n' }}{% endfor %"
    "}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}\",\"chat_template_caps\""
    ":{\"supports_object_arguments\":false,\"supports_parallel_tool_calls\":false,\"supports_"
    "preserve_reasoning\":false,\"supports_reasoning_effort\":false,\"supports_string_content"
    "\":true,\"supports_system_role\":true,\"supports_tool_calls\":false,\"supports_tools\":f"
    "alse,\"supports_typed_content\":false},\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"bu"
    "ild_info\":\"b1-80fb11a\",\"is_sleeping\":false,\"cors_proxy_enabled\":false}";

const char *const template_models_new =
    "{\"models\":[{\"name\":\"/models/tiny.gguf\",\"model\":\"/models/tiny.gguf\",\"modified_"
    "at\":\"\",\"size\":\"\",\"digest\":\"\",\"type\":\"model\",\"description\":\"\",\"tags\""
    ":[\"\"],\"capabilities\":[\"completion\"],\"parameters\":\"\",\"details\":{\"parent_mode"
    "l\":\"\",\"format\":\"gguf\",\"family\":\"\",\"families\":[\"\"],\"parameter_size\":\"\""
    ",\"quantization_level\":\"\"}}],\"object\":\"list\",\"data\":[{\"id\":\"/models/tiny.ggu"
    "f\",\"aliases\":[\"/models/tiny.gguf\"],\"tags\":[],\"object\":\"model\",\"created\":179"
    "6052016,\"owned_by\":\"llamacpp\",\"meta\":{\"vocab_type\":true,\"n_vocab\":32000,\"n_ct"
    "x\":131072,\"n_ctx_train\":131072,\"n_embd\":64,\"n_params\":4170048,\"size\":8340736,\""
    "ftype\":\"F16\"}}]}";

const char *const template_settings_old =
    "{\"seed\":4294967295,\"temperature\":0.0,\"dynatemp_range\":0.0,\"dynatemp_exponent\":1."
    "0,\"top_k\":40,\"top_p\":0.949999988079071,\"min_p\":0.05000000074505806,\"top_n_sigma\""
    ":-1.0,\"xtc_probability\":0.0,\"xtc_threshold\":0.10000000149011612,\"typical_p\":1.0,\""
    "repeat_last_n\":64,\"repeat_penalty\":1.0,\"presence_penalty\":0.0,\"frequency_penalty\""
    ":0.0,\"dry_multiplier\":0.0,\"dry_base\":1.75,\"dry_allowed_length\":2,\"dry_penalty_las"
    "t_n\":131072,\"dry_sequence_breakers\":[\"\\n\",\":\",\"\\\"\",\"*\"],\"mirostat\":0,\"m"
    "irostat_tau\":5.0,\"mirostat_eta\":0.10000000149011612,\"stop\":[],\"max_tokens\":8,\"n_"
    "predict\":8,\"n_keep\":0,\"n_discard\":0,\"ignore_eos\":true,\"stream\":false,\"logit_bi"
    "as\":[{\"bias\":null,\"token\":2}],\"n_probs\":0,\"min_keep\":0,\"grammar\":\"\",\"gramm"
    "ar_lazy\":false,\"grammar_triggers\":[],\"preserved_tokens\":[],\"chat_format\":\"Conten"
    "t-only\",\"reasoning_format\":\"deepseek\",\"reasoning_in_content\":false,\"thinking_for"
    "ced_open\":false,\"samplers\":[\"penalties\",\"dry\",\"top_n_sigma\",\"top_k\",\"typ_p\""
    ",\"top_p\",\"min_p\",\"xtc\",\"temperature\"],\"speculative.n_max\":16,\"speculative.n_m"
    "in\":0,\"speculative.p_min\":0.75,\"timings_per_token\":false,\"post_sampling_probs\":fa"
    "lse,\"lora\":[]}";

const char *const template_props_old =
    "{\"default_generation_settings\":{\"params\":{},\"n_ctx\":131072},\"total_slots\":1,\"mo"
    "del_path\":\"/models/tiny.gguf\",\"modalities\":{\"vision\":false,\"audio\":false},\"end"
    "point_slots\":true,\"endpoint_props\":false,\"endpoint_metrics\":true,\"webui\":true,\"c"
    "hat_template\":\"{%- for message in messages -%}\\n  {{- '<|im_start|>' + message.role +"
    " '\\n' + message.content + '<|im_end|>\\n' -}}\\n{%- endfor -%}\\n{%- if add_generation_"
    "prompt -%}\\n  {{- '<|im_start|>assistant\\n' -}}\\n{%- endif -%}\",\"bos_token\":\"<s>"
    "\",\"eos_token\":\"</s>\",\"build_info\":\"b1-ae3a413\"}";

const char *const template_models_old =
    "{\"models\":[{\"name\":\"/models/tiny.gguf\",\"model\":\"/models/tiny.gguf\",\"modified_"
    "at\":\"\",\"size\":\"\",\"digest\":\"\",\"type\":\"model\",\"description\":\"\",\"tags\""
    ":[\"\"],\"capabilities\":[\"completion\"],\"parameters\":\"\",\"details\":{\"parent_mode"
    "l\":\"\",\"format\":\"gguf\",\"family\":\"\",\"families\":[\"\"],\"parameter_size\":\"\""
    ",\"quantization_level\":\"\"}}],\"object\":\"list\",\"data\":[{\"id\":\"/models/tiny.ggu"
    "f\",\"object\":\"model\",\"created\":1796055026,\"owned_by\":\"llamacpp\",\"meta\":{\"vo"
    "cab_type\":1,\"n_vocab\":32000,\"n_ctx_train\":131072,\"n_embd\":64,\"n_params\":4170048"
    ",\"size\":8340736}}]}";

const char *const template_router_model =
    "{\"id\":\"tiny\",\"aliases\":[],\"tags\":[],\"object\":\"model\",\"owned_by\":\"llamacpp"
    "\",\"created\":1796053182,\"status\":{\"value\":\"loaded\",\"args\":[\"llama-server\",\""
    "--host\",\"127.0.0.1\",\"--metrics\",\"--offline\",\"--port\",\"50725\",\"--slots\",\"--"
    "alias\",\"tiny\",\"--model\",\"/models/tiny.gguf\",\"--threads\",\"1\"],\"preset\":\"[ti"
    "ny]\\nmetrics = 1\\noffline = 1\\nslots = 1\\nmodel = /models/tiny.gguf\\nthreads = 1\\n"
    "\\n\"},\"architecture\":{\"input_modalities\":[\"text\"],\"output_modalities\":[\"text\""
    "]},\"source\":\"models_dir\",\"can_remove\":false,\"meta\":{\"vocab_type\":true,\"n_voca"
    "b\":32000,\"n_ctx\":131072,\"n_ctx_train\":131072,\"n_embd\":64,\"n_params\":4170048,\"s"
    "ize\":8340736,\"ftype\":\"F16\"}}";

const char *const template_router_props =
    "{\"role\":\"router\",\"max_instances\":4,\"models_autoload\":true,\"model_alias\":\"llam"
    "a-server\",\"model_path\":\"none\",\"default_generation_settings\":{\"params\":null,\"n_"
    "ctx\":0},\"ui_settings\":{},\"build_info\":\"b1-80fb11a\",\"cors_proxy_enabled\":false}";
