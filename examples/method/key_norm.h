#pragma once

/// Makes "key-norm" known to Policy::parse. Call it once, before the first policy or saved cache
/// that names it.
void register_key_norm();
