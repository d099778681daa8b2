#pragma once
// The instruction sets the CPU kernels are compiled for: AVX2 and AVX-512.
// Include before any Highway header. x86-64-v3 promises neither AES nor
// PCLMUL, which no kernel uses; without this definition Highway 1.0.3 takes
// SSSE3 as its baseline and compiles sets that cannot fuse a multiply-add.

#ifndef HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_PCLMUL_AES
#endif
