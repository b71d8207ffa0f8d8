#include "tests/server/layout.h"

#include "broker/host_layout.h"

const size_t layout_size = sizeof(struct host_file);
const size_t layout_version_at = offsetof(struct host_header, version);
const uint32_t layout_version = HOST_LAYOUT_VERSION;
