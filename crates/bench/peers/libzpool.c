/*
 * The peer: drives OpenZFS's own engine in user space (libzpool) through the
 * same workloads as `poolhouse-bench peers work`, and answers alike: one line
 * of JSON, {"figures": {name: number}, "curves": {name: [[x, y], ...]}}.
 *
 *     libzpool WORK DIR [NAME=VALUE ...]
 *
 * WORK is reads, storm, free, unmap, overwrite, scrub or send. DIR takes the
 * pool's image, which is gone afterwards; a scrub and a send find their images
 * there and leave them. What may be set is in `knobs` below.
 *
 * It calls public entry points alone and holds nothing of OpenZFS's source.
 * scripts/bench-peers.sh builds it: against Debian's libzpool (assertions on),
 * or against a source tree that was built without them.
 *
 * A slow device is modelled by this program's own pwrite64, fsync and
 * fdatasync, which the linker prefers to the C library's: with delay_us set
 * each write and flush of an image takes so long.
 */
#include <sys/zfs_context.h>
#if PEER_API >= 25
#include <libzpool.h>
#endif
#include <sys/spa.h>
#include <sys/spa_impl.h>
#include <sys/dmu.h>
#include <sys/dmu_objset.h>
#include <sys/dmu_send.h>
#include <sys/dmu_tx.h>
#include <sys/dnode.h>
#include <sys/dsl_dataset.h>
#include <sys/dsl_pool.h>
#include <sys/dsl_prop.h>
#include <sys/dsl_scan.h>
#include <sys/txg.h>
#include <sys/vdev_impl.h>
#include <sys/zil.h>
#include <libnvpair.h>
#include <zfeature_common.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* 23: 2.3; 24: 2.4; 25: newer. */
#if PEER_API >= 25
#define	CREATE(n, r, p)	spa_create(n, r, p, NULL, NULL, NULL)
#define	SCRUB(s)	spa_scan(s, POOL_SCAN_SCRUB, 0)
#else
#define	CREATE(n, r, p)	spa_create(n, r, p, NULL, NULL)
#define	SCRUB(s)	spa_scan(s, POOL_SCAN_SCRUB)
#endif
#if PEER_API >= 24
#define	WRITE(o, b, f, s, d, t)	\
	dmu_write(o, b, f, s, d, t, DMU_READ_NO_PREFETCH)
#define	COMMIT(z, o)	VERIFY0(zil_commit(z, o))
#else
#define	WRITE(o, b, f, s, d, t)	dmu_write(o, b, f, s, d, t)
#define	COMMIT(z, o)	zil_commit(z, o)
#endif

extern char *spa_config_path;

#define	POOL	"peer"
#define	MAX_THREADS	128
#define	READ_FLAGS	DMU_READ_NO_PREFETCH

/*
 * What a command line may set. The cache is as large as libzpool likes, half
 * of the memory; what was read stays a dbuf as far as a 32nd of that goes.
 */
static uint64_t size_mb = 4096, objs = 32, obj_mb = 16;
static uint64_t bs = 8192, rs = 8192, count = 100000, msecs = 1000;
static uint64_t delay_us = 0, ashift = 12, stride = 1, prefill = 0;
static uint64_t log_device = 0, disks = 1;
static struct { const char *name; uint64_t *value; } knobs[] = {
	{ "size_mb", &size_mb }, { "objs", &objs },
	{ "obj_mb", &obj_mb }, { "bs", &bs }, { "rs", &rs },
	{ "count", &count }, { "msecs", &msecs }, { "delay_us", &delay_us },
	{ "ashift", &ashift }, { "stride", &stride },
	{ "prefill", &prefill }, { "log", &log_device },
	{ "disks", &disks },
};
static int threads[16] = { 1 }, nthreads = 1;
static const char *title = "work", *there = "image", *form = "plain";
static char image[2][512], cachefile[64];
static int slow_on;

/* ---- the answer ---------------------------------------------------------- */
static char figures[1 << 16], curves[1 << 18];

static void
add(char *to, size_t room, const char *fmt, ...)
{
	va_list ap;
	size_t used = strlen(to);
	va_start(ap, fmt);
	vsnprintf(to + used, room - used, fmt, ap);
	va_end(ap);
}

#define	FIGURE(value, ...)	do {					\
	add(figures, sizeof (figures), "%s\"%s.", *figures ? "," : "", title); \
	add(figures, sizeof (figures), __VA_ARGS__);			\
	add(figures, sizeof (figures), "\":%.6g", (double)(value));	\
} while (0)

/* ---- time ---------------------------------------------------------------- */
static double
seconds(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (t.tv_sec + t.tv_nsec / 1e9);
}
#define	now()	seconds(CLOCK_MONOTONIC)
#define	cpu()	seconds(CLOCK_PROCESS_CPUTIME_ID)

static void
take_time(void)
{
	struct timespec t = { delay_us / 1000000, delay_us % 1000000 * 1000 };
	if (slow_on && delay_us)
		nanosleep(&t, NULL);
}

ssize_t
pwrite64(int fd, const void *b, size_t n, off64_t at)
{
	take_time();
	return (syscall(SYS_pwrite64, fd, b, n, at));
}

int
fsync(int fd)
{
	take_time();
	return (syscall(SYS_fsync, fd));
}

int
fdatasync(int fd)
{
	take_time();
	return (syscall(SYS_fdatasync, fd));
}

/* ---- pools and objects --------------------------------------------------- */
static uint64_t
next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (*s);
}

static void
noise(void *b, size_t n, uint64_t seed)
{
	for (size_t i = 0; i + 8 <= n; i += 8)
		((uint64_t *)b)[i / 8] = next(&seed);
}

static nvlist_t *
leaf(const char *dir, int i)
{
	snprintf(image[i], sizeof (image[i]), "%s/peer-%d-%d.img", dir,
	    getpid(), i);
	int fd = open(image[i], O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, size_mb << 20) != 0) {
		perror(image[i]);
		exit(1);
	}
	char *piece = calloc(1, 1 << 20);
	for (uint64_t m = 4; prefill && m < size_mb - 4; m++)
		VERIFY3S(write(fd, piece, lseek(fd, m << 20, SEEK_SET) < 0 ?
		    0 : 1 << 20), ==, 1 << 20);
	free(piece);
	close(fd);
	nvlist_t *f = fnvlist_alloc();
	fnvlist_add_string(f, ZPOOL_CONFIG_TYPE, VDEV_TYPE_FILE);
	fnvlist_add_string(f, ZPOOL_CONFIG_PATH, image[i]);
	fnvlist_add_uint64(f, ZPOOL_CONFIG_ASHIFT, ashift);
	fnvlist_add_uint64(f, ZPOOL_CONFIG_IS_LOG, i);
	if (i)
		fnvlist_add_string(f, ZPOOL_CONFIG_ALLOCATION_BIAS,
		    VDEV_ALLOC_BIAS_LOG);
	return (f);
}

static objset_t *
make(const char *dir, dmu_objset_type_t type)
{
	nvlist_t *root = fnvlist_alloc(), *props = fnvlist_alloc();
	nvlist_t *top[2] = { leaf(dir, 0), log_device ? leaf(dir, 1) : NULL };
	fnvlist_add_string(root, ZPOOL_CONFIG_TYPE, VDEV_TYPE_ROOT);
	fnvlist_add_nvlist_array(root, ZPOOL_CONFIG_CHILDREN,
	    (const nvlist_t **)top, log_device ? 2 : 1);
	fnvlist_add_string(props, "cachefile", "none");
	for (int i = 0; i < SPA_FEATURES; i++) {
		char name[128];
		if (!spa_feature_table[i].fi_zfs_mod_supported)
			continue;
		snprintf(name, sizeof (name), "feature@%s",
		    spa_feature_table[i].fi_uname);
		fnvlist_add_uint64(props, name, 0);
	}
	VERIFY0(CREATE(POOL, root, props));
	objset_t *os;
	VERIFY0(dmu_objset_create(POOL "/w", type, 0, NULL, NULL, NULL));
	VERIFY0(dsl_prop_set_int(POOL "/w", "compression", ZPROP_SRC_LOCAL,
	    ZIO_COMPRESS_OFF));
	VERIFY0(dmu_objset_own(POOL "/w", type, B_FALSE, B_TRUE, (void *)POOL,
	    &os));
	slow_on = 1;
	return (os);
}

static void
unmake(objset_t *os)
{
	slow_on = 0;
	dmu_objset_disown(os, B_TRUE, (void *)POOL);
	VERIFY0(spa_destroy(POOL));
}

static void
remove_files(void)
{
	for (int i = 0; i < 2; i++)
		if (image[i][0])
			unlink(image[i]);
	unlink(cachefile);
}

static void
on_signal(int sig)
{
	remove_files();
	_exit(128 + sig);
}

static uint64_t
object(objset_t *os, uint64_t block)
{
	dmu_tx_t *tx = dmu_tx_create(os);
	dmu_tx_hold_bonus(tx, DMU_NEW_OBJECT);
	VERIFY0(dmu_tx_assign(tx, DMU_TX_WAIT));
	uint64_t o = dmu_object_alloc(os, DMU_OT_UINT64_OTHER, block,
	    DMU_OT_NONE, 0, tx);
	dmu_tx_commit(tx);
	return (o);
}

static void
put(objset_t *os, uint64_t o, uint64_t at, uint64_t len, const void *b)
{
	dmu_tx_t *tx = dmu_tx_create(os);
	dmu_tx_hold_write(tx, o, at, len);
	VERIFY0(dmu_tx_assign(tx, DMU_TX_WAIT));
	WRITE(os, o, at, len, b, tx);
	dmu_tx_commit(tx);
}

static void
sync_all(objset_t *os)
{
	txg_wait_synced(dmu_objset_pool(os), 0);
}

static void
put_all(objset_t *os, uint64_t o, uint64_t len, const char *b)
{
	for (uint64_t at = 0; at < len; at += 1 << 20)
		put(os, o, at, MIN(1 << 20, len - at), b);
}

/* ---- threads that work until the time is over ---------------------------- */
struct job {
	objset_t *os;
	zilog_t *zl;
	uint64_t *objects;
	int id;
	uint64_t ops;
	float *took;
	uint64_t cap;
};
static volatile int stop;

static void
together(int n, void *(*work)(void *), struct job *jobs, double *wall,
    double *spent)
{
	pthread_t ids[MAX_THREADS];
	struct timespec t = { msecs / 1000, msecs % 1000 * 1000000 };
	stop = 0;
	double from = now(), used = cpu();
	for (int i = 0; i < n; i++)
		pthread_create(&ids[i], NULL, work, &jobs[i]);
	nanosleep(&t, NULL);
	stop = 1;
	for (int i = 0; i < n; i++)
		pthread_join(ids[i], NULL);
	*wall = now() - from;
	*spent = cpu() - used;
}

/* ---- cached reads -------------------------------------------------------- */
static void *
read_main(void *arg)
{
	struct job *j = arg;
	uint64_t s = 0x1234567 + j->id * 7919ULL, blocks = (obj_mb << 20) / bs;
	char *b = malloc(bs);
	dnode_t **dn = calloc(objs, sizeof (*dn));
	for (uint64_t i = 0; i < objs; i++)
		VERIFY0(dnode_hold(j->os, j->objects[i], b, &dn[i]));
	while (!stop) {
		for (int k = 0; k < 64; k++) {
			uint64_t x = next(&s);
			VERIFY0(dmu_read_by_dnode(dn[x % objs],
			    (x >> 20) % blocks * bs, bs, b, READ_FLAGS));
		}
		j->ops += 64;
	}
	for (uint64_t i = 0; i < objs; i++)
		dnode_rele(dn[i], b);
	free(dn);
	free(b);
	return (NULL);
}

static void
work_reads(const char *dir)
{
	objset_t *os = make(dir, DMU_OST_OTHER);
	uint64_t *o = calloc(objs, sizeof (*o));
	char *b = malloc(1 << 20);
	noise(b, 1 << 20, 1);
	for (uint64_t i = 0; i < objs; i++)
		put_all(os, o[i] = object(os, bs), obj_mb << 20, b);
	sync_all(os);
	for (uint64_t i = 0; i < objs; i++)
		for (uint64_t m = 0; m < obj_mb; m++)
			VERIFY0(dmu_read(os, o[i], m << 20, 1 << 20, b,
			    READ_FLAGS));
	for (int t = 0; t < nthreads; t++) {
		struct job jobs[MAX_THREADS];
		double wall, spent;
		uint64_t ops = 0;
		for (int i = 0; i < threads[t]; i++)
			jobs[i] = (struct job){ .os = os, .objects = o,
			    .id = i };
		together(threads[t], read_main, jobs, &wall, &spent);
		for (int i = 0; i < threads[t]; i++)
			ops += jobs[i].ops;
		FIGURE(ops / wall, "t%d.ops_s", threads[t]);
		FIGURE(spent / ops * 1e6, "t%d.cpu_us", threads[t]);
	}
	unmake(os);
}

/* ---- a storm of small synchronous writes ---------------------------------- */
static int
no_data(void *arg, uint64_t arg2, lr_write_t *lr, char *b, struct lwb *lwb,
    zio_t *zio)
{
	abort();
}

static void *
storm_main(void *arg)
{
	struct job *j = arg;
	uint64_t blocks = (obj_mb << 20) / bs, o = j->objects[j->id];
	char *b = malloc(bs);
	noise(b, bs, 77 + j->id);
	while (!stop) {
		double from = now();
		uint64_t at = j->ops % blocks * bs;
		dmu_tx_t *tx = dmu_tx_create(j->os);
		dmu_tx_hold_write(tx, o, at, bs);
		VERIFY0(dmu_tx_assign(tx, DMU_TX_WAIT));
		WRITE(j->os, o, at, bs, b, tx);
		itx_t *itx = zil_itx_create(TX_WRITE,
		    sizeof (lr_write_t) + bs);
		lr_write_t *lr = (lr_write_t *)&itx->itx_lr;
		lr->lr_foid = o;
		lr->lr_offset = at;
		lr->lr_length = bs;
		lr->lr_blkoff = 0;
		BP_ZERO(&lr->lr_blkptr);
		memcpy((char *)lr + sizeof (lr_write_t), b, bs);
		itx->itx_wr_state = WR_COPIED;
		itx->itx_sync = B_TRUE;
		itx->itx_private = j;
		zil_itx_assign(j->zl, itx, tx);
		dmu_tx_commit(tx);
		COMMIT(j->zl, o);
		if (j->ops < j->cap)
			j->took[j->ops] = (now() - from) * 1e6;
		j->ops++;
	}
	free(b);
	return (NULL);
}

static int
by_size(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x < y ? -1 : x > y);
}

static void
tell_latency(int n, struct job *jobs)
{
	uint64_t all = 0, k = 0;
	for (int i = 0; i < n; i++)
		all += MIN(jobs[i].ops, jobs[i].cap);
	float *l = malloc(all * sizeof (float));
	for (int i = 0; i < n; i++) {
		uint64_t m = MIN(jobs[i].ops, jobs[i].cap);
		memcpy(l + k, jobs[i].took, m * sizeof (float));
		k += m;
	}
	qsort(l, all, sizeof (float), by_size);
	FIGURE(l[all / 2], "t%d.p50_us", n);
	FIGURE(l[all * 99 / 100], "t%d.p99_us", n);
	add(curves, sizeof (curves), "%s\"%s.t%d.latency_us\":[",
	    *curves ? "," : "", title, n);
	for (int p = 0; p <= 200; p++)
		add(curves, sizeof (curves), "%s[%.1f,%.4f]", p ? "," : "",
		    l[MIN(all - 1, all * p / 200)], p / 200.0);
	add(curves, sizeof (curves), "]");
	free(l);
}

static void
work_storm(const char *dir)
{
	objset_t *os = make(dir, DMU_OST_OTHER);
	zilog_t *zl = zil_open(os, no_data, NULL);
	uint64_t o[MAX_THREADS];
	for (int i = 0; i < MAX_THREADS; i++)
		o[i] = object(os, bs);
	sync_all(os);
	for (int t = -1; t < nthreads; t++) {
		/* The first time nothing is measured: the log begins. */
		int n = threads[MAX(t, 0)];
		struct job jobs[MAX_THREADS];
		double wall, spent;
		uint64_t ops = 0;
		for (int i = 0; i < n; i++)
			jobs[i] = (struct job){ .os = os, .zl = zl,
			    .objects = o, .id = i, .cap = 1 << 18,
			    .took = malloc(sizeof (float) << 18) };
		together(n, storm_main, jobs, &wall, &spent);
		for (int i = 0; i < n; i++)
			ops += jobs[i].ops;
		if (t >= 0) {
			FIGURE(ops / wall, "t%d.ops_s", n);
			FIGURE(spent / ops * 1e6, "t%d.cpu_us", n);
			tell_latency(n, jobs);
		}
		for (int i = 0; i < n; i++)
			free(jobs[i].took);
	}
	zil_close(zl);
	unmake(os);
}

/* ---- freeing ------------------------------------------------------------- */
static void
work_free(const char *dir)
{
	objset_t *os = make(dir, DMU_OST_OTHER);
	char *b = malloc(1 << 20);
	noise(b, 1 << 20, 9);
	uint64_t o = object(os, rs), len = count * rs;
	double from = now(), used = cpu();
	put_all(os, o, len, b);
	sync_all(os);
	FIGURE(cpu() - used, "write_cpu_s");
	for (uint64_t at = 0; at < len; at += 1 << 20)
		VERIFY0(dmu_read(os, o, at, MIN(1 << 20, len - at), b,
		    READ_FLAGS));
	float each[100];
	for (int i = 0; i < 100; i++) {
		from = seconds(CLOCK_THREAD_CPUTIME_ID);
		VERIFY0(dmu_free_long_range(os, o, (count / 2 + i * 7) * rs,
		    rs));
		each[i] = (seconds(CLOCK_THREAD_CPUTIME_ID) - from) * 1e6;
	}
	qsort(each, 100, sizeof (float), by_size);
	FIGURE(each[50], "one_cpu_us");
	sync_all(os);
	from = now();
	used = cpu();
	VERIFY0(dmu_free_long_object(os, o));
	sync_all(os);
	FIGURE(cpu() - used, "all_cpu_s");
	FIGURE(now() - from, "all_s");
	unmake(os);
}

/* A block in each `stride` of a volume's object, then all of it freed. */
static void
work_unmap(const char *dir)
{
	objset_t *os = make(dir, DMU_OST_OTHER);
	char *b = malloc(rs);
	noise(b, rs, 9);
	uint64_t o = object(os, rs);
	double used = cpu();
	for (uint64_t i = 0; i < count; i++)
		put(os, o, i * stride * rs, rs, b);
	sync_all(os);
	FIGURE(cpu() - used, "write_cpu_s");
	double from = now();
	used = cpu();
	VERIFY0(dmu_free_long_range(os, o, 0, DMU_OBJECT_END));
	FIGURE(now() - from, "call_s");
	sync_all(os);
	FIGURE(cpu() - used, "cpu_s");
	FIGURE(now() - from, "s");
	unmake(os);
}

/* ---- random overwrites ----------------------------------------------------- */
static void
work_overwrite(const char *dir)
{
	objset_t *os = make(dir, DMU_OST_OTHER);
	char *b = malloc(1 << 20);
	uint64_t s = 99, len = obj_mb << 20, o = object(os, rs);
	noise(b, 1 << 20, 4);
	put_all(os, o, len, b);
	sync_all(os);
	for (uint64_t at = 0; at < len; at += 1 << 20)
		VERIFY0(dmu_read(os, o, at, 1 << 20, b, READ_FLAGS));
	double from = now(), used = cpu();
	for (uint64_t i = 0; i < count; i++)
		put(os, o, next(&s) % (len / bs) * bs, bs, b);
	FIGURE((cpu() - used) / count * 1e6, "call_cpu_us");
	sync_all(os);
	FIGURE((cpu() - used) / count * 1e6, "cpu_us");
	FIGURE(count / (now() - from), "ops_s");
	unmake(os);
}

/* ---- a scrub of images that are there ------------------------------------- */
/*
 * What an import wants to know of a pool of one top-level vdev: what the label
 * of its first device says, with that vdev below a root.
 */
static nvlist_t *
config_of(const char *path)
{
	size_t size = sizeof (vdev_phys_t);
	char *label = malloc(size);
	int fd = open(path, O_RDONLY);
	if (fd < 0 || pread(fd, label, size, offsetof(vdev_label_t,
	    vl_vdev_phys)) != (ssize_t)size) {
		perror(path);
		exit(1);
	}
	close(fd);
	nvlist_t *config = NULL, *root = fnvlist_alloc();
	VERIFY0(nvlist_unpack(label, size, &config, 0));
	free(label);
	nvlist_t *top = fnvlist_lookup_nvlist(config, ZPOOL_CONFIG_VDEV_TREE);
	fnvlist_add_string(root, ZPOOL_CONFIG_TYPE, VDEV_TYPE_ROOT);
	fnvlist_add_uint64(root, ZPOOL_CONFIG_ID, 0);
	fnvlist_add_uint64(root, ZPOOL_CONFIG_GUID,
	    fnvlist_lookup_uint64(config, ZPOOL_CONFIG_POOL_GUID));
	fnvlist_add_nvlist_array(root, ZPOOL_CONFIG_CHILDREN,
	    (const nvlist_t **)&top, 1);
	fnvlist_add_nvlist(config, ZPOOL_CONFIG_VDEV_TREE, root);
	fnvlist_free(root);
	return (config);
}

/* Imports the pool of an image that is there. */
static spa_t *
import(const char *dir, char *name, size_t size)
{
	char path[512];
	spa_t *spa;
	snprintf(path, sizeof (path), "%s/%s-0.img", dir, there);
	nvlist_t *config = config_of(path), *props = fnvlist_alloc();
	strlcpy(name, fnvlist_lookup_string(config, ZPOOL_CONFIG_POOL_NAME),
	    size);
	fnvlist_add_string(props, "cachefile", "none");
	VERIFY0(spa_import(name, config, props, 0));
	VERIFY0(spa_open(name, &spa, POOL));
	return (spa);
}

static void
leave(spa_t *spa, const char *name)
{
	spa_close(spa, POOL);
	VERIFY0(spa_export(name, NULL, B_FALSE, B_FALSE));
}

static void
work_scrub(const char *dir)
{
	char name[ZFS_MAX_DATASET_NAME_LEN];
	spa_t *spa = import(dir, name, sizeof (name));
	pool_scan_stat_t ps;
	struct timespec t = { 0, 1000000 };
	double from = now(), used = cpu();
	VERIFY0(SCRUB(spa));
	while (spa_scan_get_stats(spa, &ps) == 0 &&
	    ps.pss_state == DSS_SCANNING)
		nanosleep(&t, NULL);
	txg_wait_synced(spa_get_dsl(spa), 0);
	double wall = now() - from, spent = cpu() - used;
	VERIFY0(spa_scan_get_stats(spa, &ps));
	VERIFY3U(ps.pss_state, ==, DSS_FINISHED);
	VERIFY0(ps.pss_errors);
	uint64_t bytes = objs * obj_mb << 20;
	VERIFY3U(ps.pss_examined, >=, bytes);
	FIGURE(wall, "s");
	FIGURE(spent, "cpu_s");
	FIGURE(bytes / wall / 1e6, "mb_s");
	leave(spa, name);
}

/* ---- a send of a snapshot to a pipe --------------------------------------- */
static int
to_pipe(objset_t *os, void *b, int len, void *arg)
{
	for (int n, done = 0; done < len; done += n) {
		n = write(*(int *)arg, (char *)b + done, len - done);
		if (n < 0)
			return (errno);
	}
	return (0);
}

static void
work_send(const char *dir)
{
	char name[ZFS_MAX_DATASET_NAME_LEN], snap[ZFS_MAX_DATASET_NAME_LEN];
	spa_t *spa = import(dir, name, sizeof (name));
	dsl_pool_t *dp = spa_get_dsl(spa);
	dsl_dataset_t *ds;
	snprintf(snap, sizeof (snap), "%s/w@s", name);
	VERIFY0(dsl_pool_hold(name, FTAG, &dp));
	VERIFY0(dsl_dataset_hold(dp, snap, FTAG, &ds));
	uint64_t to = ds->ds_object;
	dsl_dataset_rele(ds, FTAG);
	dsl_pool_rele(dp, FTAG);
	boolean_t packed = strcmp(form, "compressed") == 0;
	boolean_t raw = strcmp(form, "raw") == 0;
	/* The program that reads the pipe does not count. */
	FILE *reader = popen("exec cat >/dev/null", "w");
	int fd = fileno(reader);
	offset_t off = 0;
	dmu_send_outparams_t out = { .dso_outfunc = to_pipe, .dso_arg = &fd };
	double from = now(), used = cpu();
	VERIFY0(dmu_send_obj(name, to, 0, B_FALSE, B_FALSE, packed, raw,
	    B_FALSE, fd, &off, &out));
	double wall = now() - from, spent = cpu() - used;
	VERIFY0(pclose(reader));
	FIGURE(wall, "s");
	FIGURE(spent, "cpu_s");
	FIGURE((objs * obj_mb << 20) / wall / 1e6, "mb_s");
	leave(spa, name);
}

static const struct { const char *name; void (*work)(const char *); } works[] = {
	{ "reads", work_reads }, { "storm", work_storm },
	{ "free", work_free }, { "unmap", work_unmap },
	{ "overwrite", work_overwrite }, { "scrub", work_scrub },
	{ "send", work_send },
};

static int
set(char *arg)
{
	char *value = strchr(arg, '=');
	if (value == NULL)
		return (0);
	*value++ = 0;
	if (strcmp(arg, "title") == 0) {
		title = value;
		return (1);
	}
	if (strcmp(arg, "image") == 0) {
		there = value;
		return (1);
	}
	if (strcmp(arg, "form") == 0) {
		form = value;
		return (1);
	}
	if (strcmp(arg, "threads") == 0) {
		for (nthreads = 0; nthreads < 16 && *value; nthreads++) {
			threads[nthreads] = strtol(value, &value, 10);
			if (threads[nthreads] < 1 ||
			    threads[nthreads] > MAX_THREADS)
				return (0);
			value += *value == ',';
		}
		return (nthreads > 0);
	}
	for (size_t i = 0; i < sizeof (knobs) / sizeof (knobs[0]); i++)
		if (strcmp(arg, knobs[i].name) == 0) {
			*knobs[i].value = strtoull(value, NULL, 10);
			return (1);
		}
	return (0);
}

int
main(int argc, char **argv)
{
	if (argc < 3)
		goto usage;
	char *dir = realpath(argv[2], NULL);
	if (dir == NULL) {
		perror(argv[2]);
		return (1);
	}
	for (int i = 3; i < argc; i++)
		if (!set(argv[i]))
			goto usage;
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	signal(SIGABRT, on_signal);
	snprintf(cachefile, sizeof (cachefile), "%.40s/peer-%d.cache", "/tmp",
	    getpid());
	spa_config_path = cachefile;
	kernel_init(SPA_MODE_READ | SPA_MODE_WRITE);
	for (size_t i = 0; i < sizeof (works) / sizeof (works[0]); i++)
		if (strcmp(argv[1], works[i].name) == 0) {
			works[i].work(dir);
			kernel_fini();
			remove_files();
			printf("{\"figures\":{%s},\"curves\":{%s}}\n",
			    figures, curves);
			return (0);
		}
usage:
	fprintf(stderr, "usage: libzpool reads|storm|free|unmap|overwrite|"
	    "scrub|send DIR"
	    " [NAME=VALUE ...]\n");
	return (2);
}
