// HEARTH_HD: functions that host and device code share.
#pragma once

#ifdef __CUDACC__
#define HEARTH_HD __host__ __device__
#else
#define HEARTH_HD
#endif
