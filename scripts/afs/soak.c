/* A client of file servers for scripts/afs/soak.py: it makes the calls that it reads, one a line.
 *
 * It is linked with the Rx and RXAFS client stubs of Debian's libopenafs-dev, and speaks to any
 * server of the AFS-3 protocol, without security. scripts/afs/lib.sh builds it.
 *
 * A request is OP ADDRESS VOLUME VNODE UNIQUE and what follows here. Names and targets have no
 * blanks. An answer is a line that begins with the code of the call, 0 for none.
 *
 *   create NAME             -> CODE VNODE UNIQUE
 *   mkdir NAME              -> CODE VNODE UNIQUE
 *   symlink NAME TARGET     -> CODE
 *   link NAME VNODE UNIQUE  -> CODE
 *   remove NAME             -> CODE
 *   rmdir NAME              -> CODE
 *   rename NAME VNODE UNIQUE NEW -> CODE; the new directory and name
 *   store POSITION LENGTH SIZE FSYNC, then a line, then LENGTH bytes -> CODE
 *   fetch                   -> CODE TYPE LINKS LENGTH, then LENGTH bytes
 */
#include <afs/param.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>
#include <arpa/inet.h>
#include <rx/rx.h>
#include <rx/rx_null.h>
#include <afs/stds.h>
#include <afs/afsint.h>
#define FSINT_COMMON_XG 1
#include <afs/afscbint.h>
#include <afs/afs_consts.h>
#include <afs/cellconfig.h>
#include <afs/afscp.h>

#define SERVERS 8
#define FSYNC 0x400 /* AFS_FSYNC of AFSStoreStatus.Mask */

static struct { afs_uint32 address; struct rx_connection *c; } known[SERVERS];

static struct rx_connection *connection(afs_uint32 address) {
    int i = 0;
    while (i < SERVERS && known[i].address && known[i].address != address) i++;
    if (i == SERVERS) exit(3);
    if (!known[i].address) {
        known[i].address = address;
        known[i].c = rx_NewConnection(address, htons(7000), 1, rxnull_NewClientSecurityObject(), 0);
    }
    return known[i].c;
}

static int write_all(struct rx_call *k, const char *b, long n) {
    while (n > 0) {
        int w = n > 65536 ? 65536 : n;
        if (rx_Write(k, (char *)b, w) != w) return -1;
        b += w;
        n -= w;
    }
    return 0;
}

static afs_int32 store(struct rx_connection *c, AFSFid *f, long at, long n, long size, int sync, const char *b) {
    AFSStoreStatus in;
    AFSFetchStatus out;
    AFSVolSync vs;
    struct rx_call *k = rx_NewCall(c);
    memset(&in, 0, sizeof in);
    in.Mask = AFS_SETMODTIME | (sync ? FSYNC : 0);
    in.ClientModTime = time(0);
    afs_int32 r = StartRXAFS_StoreData64(k, f, &in, at, n, size);
    if (!r) r = write_all(k, b, n);
    if (!r) r = EndRXAFS_StoreData64(k, &out, &vs);
    return rx_EndCall(k, r);
}

static afs_int32 fetch(struct rx_connection *c, AFSFid *f, char *b, long n, long *got) {
    AFSFetchStatus out;
    AFSCallBack cb;
    AFSVolSync vs;
    afs_uint32 hi = 0, lo = 0;
    struct rx_call *k = rx_NewCall(c);
    afs_int32 r = StartRXAFS_FetchData64(k, f, 0, n);
    *got = 0;
    if (!r && (rx_Read(k, (char *)&hi, 4) != 4 || rx_Read(k, (char *)&lo, 4) != 4)) r = -1;
    long left = r ? 0 : (long)ntohl(lo);
    if (hi || left > n) { left = 0; r = -1; }
    while (!r && left > 0) {
        int w = left > 65536 ? 65536 : left;
        if (rx_Read(k, b + *got, w) != w) r = -1;
        left -= w;
        *got += w;
    }
    if (!r) r = EndRXAFS_FetchData64(k, &out, &cb, &vs);
    return rx_EndCall(k, r);
}

/* Reads a whole file, a directory or a link. The data and the status may be of two versions. Then
 * it is read again. */
static void fetched(struct rx_connection *c, AFSFid *f) {
    AFSFetchStatus st, again;
    AFSCallBack cb;
    AFSVolSync vs;
    char *b = 0;
    long got = 0;
    afs_int32 r;
    do {
        r = RXAFS_FetchStatus(c, f, &st, &cb, &vs);
        free(b);
        b = 0;
        if (r) break;
        b = malloc(st.Length + 1);
        r = fetch(c, f, b, st.Length, &got);
        if (!r) r = RXAFS_FetchStatus(c, f, &again, &cb, &vs);
    } while (!r && st.DataVersion != again.DataVersion);
    if (r) printf("%d\n", r);
    else {
        printf("0 %u %u %ld\n", st.FileType, st.LinkCount, got);
        fwrite(b, 1, got, stdout);
    }
    free(b);
}

static afs_int32 one(char *op, struct rx_connection *c, AFSFid *f, char *rest) {
    AFSFid to = { f->Volume, 0, 0 };
    AFSFetchStatus st, ds;
    AFSCallBack cb;
    AFSVolSync vs;
    AFSStoreStatus in;
    char name[300] = "", other[1100] = "";
    long at, n, size;
    int sync;
    memset(&in, 0, sizeof in);
    in.Mask = AFS_SETMODE;
    in.UnixModeBits = !strcmp(op, "create") ? 0644 : 0755;
    if (!strcmp(op, "store")) {
        if (sscanf(rest, "%ld %ld %ld %d", &at, &n, &size, &sync) != 4) exit(2);
        char *b = malloc(n + 1);
        if (fread(b, 1, n, stdin) != (size_t)n) exit(2);
        afs_int32 r = store(c, f, at, n, size, sync, b);
        free(b);
        return r;
    }
    if (!strcmp(op, "rename")) {
        if (sscanf(rest, "%255s %u %u %255s", name, &to.Vnode, &to.Unique, other) != 4) exit(2);
        return RXAFS_Rename(c, f, name, &to, other, &st, &ds, &vs);
    }
    if (!strcmp(op, "link")) {
        if (sscanf(rest, "%255s %u %u", name, &to.Vnode, &to.Unique) != 3) exit(2);
        return RXAFS_Link(c, f, name, &to, &st, &ds, &vs);
    }
    if (sscanf(rest, "%255s %1023s", name, other) < 1) exit(2);
    if (!strcmp(op, "symlink")) return RXAFS_Symlink(c, f, name, other, &in, &to, &st, &ds, &vs);
    if (!strcmp(op, "remove")) return RXAFS_RemoveFile(c, f, name, &ds, &vs);
    if (!strcmp(op, "rmdir")) return RXAFS_RemoveDir(c, f, name, &ds, &vs);
    afs_int32 r = -2;
    if (!strcmp(op, "create")) r = RXAFS_CreateFile(c, f, name, &in, &to, &st, &ds, &cb, &vs);
    else if (!strcmp(op, "mkdir")) r = RXAFS_MakeDir(c, f, name, &in, &to, &st, &ds, &cb, &vs);
    else exit(2);
    if (!r) *f = to;
    return r;
}

int main(void) {
    char *line = 0, op[16], address[32];
    size_t room = 0;
    int read;
    AFSFid f;
    if (afscp_Init(NULL)) { fprintf(stderr, "no client\n"); return 1; }
    while (getline(&line, &room, stdin) > 0) {
        if (sscanf(line, "%15s %31s %u %u %u %n", op, address, &f.Volume, &f.Vnode, &f.Unique, &read) != 5)
            return 2;
        struct rx_connection *c = connection(inet_addr(address));
        if (!strcmp(op, "fetch")) fetched(c, &f);
        else {
            afs_int32 r = one(op, c, &f, line + read);
            if (!r && (!strcmp(op, "create") || !strcmp(op, "mkdir"))) printf("0 %u %u\n", f.Vnode, f.Unique);
            else printf("%d\n", r);
        }
        fflush(stdout);
    }
    /* Else the servers wait for this client when they next break promises. */
    for (int i = 0; i < SERVERS && known[i].address; i++) RXAFS_GiveUpAllCallBacks(known[i].c);
    _exit(0);
}
