/* Load a file server over Rx and say how many calls a second it answers.
 *
 * Our own client, linked with the Rx and RXAFS client stubs of Debian's
 * libopenafs-dev.  It speaks to any server of the AFS-3 protocol, so the same
 * binary measures OpenAFS and a new server.
 *
 *   afsbench ADDR VOLUME OP THREADS SECONDS [SIZE] [FIDS] [-localauth|-encrypt]
 *
 * OP: null     GetCapabilities, no volume
 *     status   FetchStatus of the volume's root
 *     bulk     InlineBulkStatus of 50 fids (the root, 50 times)
 *     create   CreateFile in the root, then RemoveFile (counts both)
 *     write    StoreData64 of SIZE bytes into a file of this thread's own
 *     read     FetchData64 of SIZE bytes from such a file
 *     small    CreateFile + StoreData64 of SIZE bytes + RemoveFile
 * These end by themselves, and SECONDS is a count for them:
 *     first    FetchStatus of the roots of so many volumes, once each: VOLUME, VOLUME + 2, ...
 *     fill     so many files of SIZE bytes, 1000 to a directory, whose name has SIZE; FIDS becomes their list
 *     change   StoreData64 of SIZE bytes into so many files of the list FIDS, evenly spread
 * A server of OpenAFS may answer VBUSY. These three then try again after 1 ms, and count an error.
 * One connection for each thread, so calls are spread over the server's threads.
 *
 * scripts/afs/lib.sh builds it, from Debian's libopenafs-dev.
 */
#include <afs/param.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>
#include <sys/time.h>
#include <arpa/inet.h>
#include <rx/rx.h>
#include <rx/rx_null.h>
#include <afs/stds.h>
#include <afs/afsint.h>
#define FSINT_COMMON_XG 1
#include <afs/afscbint.h>
#include <afs/cellconfig.h>
#include <afs/afscp.h>

static struct rx_securityClass *sc;
static afs_int32 scix;
static afs_uint32 addr, vol;
static const char *op;
static volatile int stop;
static long size = 1024, count, threads;
static AFSFid *fids; /* of fill and change; a vnode of 0: not made */
static const char *list; /* FIDS */
static long known; /* its files */
#define IN_DIRECTORY 1000
struct th { pthread_t t; int i; long n, bytes, err; afs_int32 last; double lat, max; };

static double now(void) { struct timeval v; gettimeofday(&v, 0); return v.tv_sec + v.tv_usec / 1e6; }

static afs_int32 store(struct rx_connection *c, AFSFid *f, char *b, long n) {
    struct rx_call *k = rx_NewCall(c);
    AFSStoreStatus in; AFSFetchStatus out; AFSVolSync vs;
    memset(&in, 0, sizeof in); in.Mask = AFS_SETMODTIME; in.ClientModTime = time(0);
    afs_int32 r = StartRXAFS_StoreData64(k, f, &in, 0, n, n);
    long l = n;
    while (!r && l > 0) { int w = l > 65536 ? 65536 : l; if (rx_Write(k, b, w) != w) r = -1; l -= w; }
    if (!r) r = EndRXAFS_StoreData64(k, &out, &vs);
    return rx_EndCall(k, r);
}
static afs_int32 fetch(struct rx_connection *c, AFSFid *f, char *b, long n, long *got) {
    struct rx_call *k = rx_NewCall(c);
    AFSFetchStatus out; AFSCallBack cb; AFSVolSync vs; afs_uint32 hi, lo;
    afs_int32 r = StartRXAFS_FetchData64(k, f, 0, n);
    *got = 0;
    if (!r && (rx_Read(k, (char *)&hi, 4) != 4 || rx_Read(k, (char *)&lo, 4) != 4)) r = -1;
    long l = r ? 0 : (long)ntohl(lo);
    while (!r && l > 0) { int w = l > 65536 ? 65536 : l; if (rx_Read(k, b, w) != w) r = -1; l -= w; *got += w; }
    if (!r) r = EndRXAFS_FetchData64(k, &out, &cb, &vs);
    return rx_EndCall(k, r);
}

#define TRY(t, r, call) do { r = call; if (r == 110) { (t)->err++; (t)->last = r; usleep(1000); } } while (r == 110)

static void first(struct th *t, struct rx_connection *c) {
    AFSFetchStatus st; AFSCallBack cb; AFSVolSync vs; afs_int32 r;
    for (long k = t->i; k < count; k += threads) {
        AFSFid root = { vol + 2 * k, 1, 1 };
        double s = now();
        TRY(t, r, RXAFS_FetchStatus(c, &root, &st, &cb, &vs));
        double d = now() - s; t->lat += d; if (d > t->max) t->max = d;
        if (r) { t->err++; t->last = r; return; }
        t->n++;
    }
}
static void fill(struct th *t, struct rx_connection *c, AFSStoreStatus *in, char *b) {
    AFSFid root = { vol, 1, 1 }, dir; AFSFetchStatus st, ds; AFSCallBack cb; AFSVolSync vs; afs_int32 r;
    AFSStoreStatus mode = *in; mode.UnixModeBits = 0755;
    char name[64];
    for (long d = t->i; d * IN_DIRECTORY < count; d += threads) {
        sprintf(name, "d%ld.%ld", size, d);
        TRY(t, r, RXAFS_MakeDir(c, &root, name, &mode, &dir, &st, &ds, &cb, &vs));
        for (long k = d * IN_DIRECTORY; !r && k < count && k < (d + 1) * IN_DIRECTORY; k++) {
            sprintf(name, "f%ld", k);
            TRY(t, r, RXAFS_CreateFile(c, &dir, name, in, &fids[k], &st, &ds, &cb, &vs));
            if (!r && size) TRY(t, r, store(c, &fids[k], b, size));
            t->n++; t->bytes += size;
        }
        if (r) { t->err++; t->last = r; return; }
    }
}
static void change(struct th *t, struct rx_connection *c, char *b) {
    afs_int32 r;
    for (long k = t->i; k < count; k += threads) {
        TRY(t, r, store(c, &fids[k * known / count], b, size));
        if (r) { t->err++; t->last = r; return; }
        t->n++; t->bytes += size;
    }
}
static void *once(void *a) {
    struct th *t = a;
    struct rx_connection *c = rx_NewConnection(addr, htons(7000), 1, sc, scix);
    AFSStoreStatus in; memset(&in, 0, sizeof in); in.Mask = AFS_SETMODE; in.UnixModeBits = 0644;
    char *b = malloc(65536); memset(b, 'a' + time(0) % 26, 65536);
    if (!strcmp(op, "first")) first(t, c);
    else if (!strcmp(op, "fill")) fill(t, c, &in, b);
    else change(t, c, b);
    RXAFS_GiveUpAllCallBacks(c);
    return 0;
}
/* Reads or writes the list: a line for each file. */
static int lists(const char *how) {
    FILE *f = fopen(list, how);
    if (!f) return -1;
    if (*how == 'w') for (long k = 0; k < count; k++) fprintf(f, "%u %u\n", fids[k].Vnode, fids[k].Unique);
    else {
        long room = 0; unsigned v, u;
        while (fscanf(f, "%u %u", &v, &u) == 2) {
            if (known == room) fids = realloc(fids, (room = room ? 2 * room : 1024) * sizeof *fids);
            fids[known++] = (AFSFid){ vol, v, u };
        }
    }
    return fclose(f);
}

static void *run(void *a) {
    struct th *t = a;
    struct rx_connection *c = rx_NewConnection(addr, htons(7000), 1, sc, scix);
    AFSFid root = { vol, 1, 1 }, f; AFSFetchStatus st, ds; AFSCallBack cb; AFSVolSync vs; AFSStoreStatus in;
    char name[64], *b = malloc(65536); memset(b, 'x', 65536);
    memset(&in, 0, sizeof in); in.Mask = AFS_SETMODE; in.UnixModeBits = 0644;
    int rw = !strcmp(op, "read") || !strcmp(op, "write");
    sprintf(name, "ab-%d-%d", (int)getpid(), t->i);
    if (rw) {
        t->last = RXAFS_CreateFile(c, &root, name, &in, &f, &st, &ds, &cb, &vs);
        if (t->last) { t->err++; return 0; }
        t->last = store(c, &f, b, size);
    }
    long k = 0;
    while (!stop && !(t->err > 20)) {
        double s = now(); afs_int32 r = 0; long got;
        if (!strcmp(op, "null")) { Capabilities cap = { 0, 0 }; r = RXAFS_GetCapabilities(c, &cap); xdr_free((xdrproc_t)xdr_Capabilities, &cap); t->n++; }
        else if (!strcmp(op, "status")) { r = RXAFS_FetchStatus(c, &root, &st, &cb, &vs); t->n++; }
        else if (!strcmp(op, "bulk")) {
            AFSFid ff[50]; AFSCBFids fs = { 50, ff }; AFSBulkStats bs = { 0, 0 }; AFSCBs cbs = { 0, 0 };
            for (int i = 0; i < 50; i++) ff[i] = root;
            r = RXAFS_InlineBulkStatus(c, &fs, &bs, &cbs, &vs); t->n++;
            free(bs.AFSBulkStats_val); free(cbs.AFSCBs_val);
        } else if (!strcmp(op, "create") || !strcmp(op, "small")) {
            sprintf(name, "ab-%d-%d-%ld", (int)getpid(), t->i, k++);
            r = RXAFS_CreateFile(c, &root, name, &in, &f, &st, &ds, &cb, &vs);
            if (!r && *op == 's') r = store(c, &f, b, size);
            if (!r) r = RXAFS_RemoveFile(c, &root, name, &ds, &vs);
            t->n++; t->bytes += *op == 's' ? size : 0;
        } else if (!strcmp(op, "write")) { r = store(c, &f, b, size); t->n++; t->bytes += size; }
        else if (!strcmp(op, "read")) { r = fetch(c, &f, b, size, &got); t->n++; t->bytes += got; }
        double d = now() - s; t->lat += d; if (d > t->max) t->max = d;
        if (r) { t->err++; t->last = r; }
    }
    if (rw) { sprintf(name, "ab-%d-%d", (int)getpid(), t->i); RXAFS_RemoveFile(c, &root, name, &ds, &vs); }
    /* else the server waits seconds for this dead client when it next breaks callbacks */
    RXAFS_GiveUpAllCallBacks(c);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 6) { fprintf(stderr, "usage: afsbench ADDR VOLUME OP THREADS SECONDS [SIZE] [FIDS] [-localauth|-encrypt]\n"); return 2; }
    addr = inet_addr(argv[1]); vol = strtoul(argv[2], 0, 10); op = argv[3];
    int nt = atoi(argv[4]); double secs = atof(argv[5]);
    int la = 0;
    for (int i = 6; i < argc; i++) { if (!strcmp(argv[i], "-localauth")) la = 1; else if (!strcmp(argv[i], "-encrypt")) la = 2; else if (*argv[i] == '/') list = argv[i]; else size = atol(argv[i]); }
    int by_count = !strcmp(op, "first") || !strcmp(op, "fill") || !strcmp(op, "change");
    if (by_count) { count = atol(argv[5]); secs = 0; threads = nt; }
    if (!strcmp(op, "fill")) fids = calloc(count, sizeof *fids);
    if (*op == 'c' && by_count && (!list || lists("r") || !known)) { fprintf(stderr, "no list of files\n"); return 1; }
    if (afscp_Init(NULL)) { fprintf(stderr, "init\n"); return 1; }
    if (la) {
        struct afsconf_dir *d = afsconf_Open("/etc/openafs/server");
        if (!d || (la == 1 ? afsconf_ClientAuth(d, &sc, &scix) : afsconf_ClientAuthSecure(d, &sc, &scix)) || scix == 0) { fprintf(stderr, "no key\n"); return 1; }
    } else { sc = rxnull_NewClientSecurityObject(); scix = 0; }
    struct th *t = calloc(nt, sizeof *t);
    double s = now();
    for (int i = 0; i < nt; i++) { t[i].i = i; pthread_create(&t[i].t, 0, by_count ? once : run, &t[i]); }
    usleep(secs * 1e6); stop = 1;
    for (int i = 0; i < nt; i++) pthread_join(t[i].t, 0);
    double d = now() - s, lat = 0, max = 0; long n = 0, b = 0, e = 0; afs_int32 last = 0;
    for (int i = 0; i < nt; i++) { n += t[i].n; b += t[i].bytes; e += t[i].err; lat += t[i].lat; if (t[i].max > max) max = t[i].max; if (t[i].last) last = t[i].last; }
    if (!strcmp(op, "fill") && list && lists("w")) { fprintf(stderr, "the list can't be written\n"); return 1; }
    printf("%s threads=%d size=%ld sec=%d: %ld in %.2f s = %.0f/s, %.1f MiB/s, mean %.2f ms max %.0f ms, errors %ld (last %d)\n",
           op, nt, size, scix, n, d, n / d, b / d / 1048576, n ? lat / n * 1e3 : 0, max * 1e3, e, last);
    fflush(stdout);
    _exit(e ? 1 : 0);
}
