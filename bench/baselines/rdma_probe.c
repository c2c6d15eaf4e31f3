// The least that RDMA between two processes costs, as a yardstick for our own transport: the same READs, WRITEs and
// messages, at the same depth, on memory of the same kind, checked by the same CRC. Nothing is limited, timed out,
// recovered or shared; one connection, then the end.
//
//   rdma_probe serve ADDRESS PORT MEBIBYTES PASSES      offers PASSES memories for writing and one for reading
//   rdma_probe read ADDRESS PORT PIECE DEPTH PASSES CHECK    prints seconds a pass; CHECK: 1 verifies every chunk's CRC
//   rdma_probe write ADDRESS PORT PIECE DEPTH PASSES CHECK   a message behind every PIECE, answered when it was checked
//   rdma_probe latency ADDRESS PORT PIECE COUNT CHECK BEHIND prints microseconds: 50th and 99th percentile of single READs;
//                                                            BEHIND: bytes of a second READ posted with each (0: none)
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <nmmintrin.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 512, MESSAGE = 64, WINDOW = 64, PASSES_MAX = 16, SEND_DEPTH = 512 };

// What the server says about its memories: the data to be read, and for each pass data and CRCs to be written.
struct memory { uint64_t address; uint32_t key; uint32_t mebibytes; };
struct offer { struct memory read; uint32_t passes; struct memory data[PASSES_MAX], crcs[PASSES_MAX]; };
struct slice { uint32_t pass, first, length; };

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// CRC32C of chunks, three at a time: the processor's instruction answers after three cycles and begins one a cycle.
static void crcs_of(const uint8_t *data, size_t chunks, uint32_t *into) {
    size_t i = 0;
    for (; i + 3 <= chunks; i += 3) {
        const uint64_t *a = (const void *)(data + i * CHUNK), *b = a + CHUNK / 8, *c = b + CHUNK / 8;
        uint64_t x = ~0u, y = ~0u, z = ~0u;
        for (int k = 0; k < CHUNK / 8; k++) {
            x = _mm_crc32_u64(x, a[k]);
            y = _mm_crc32_u64(y, b[k]);
            z = _mm_crc32_u64(z, c[k]);
        }
        into[i] = ~(uint32_t)x, into[i + 1] = ~(uint32_t)y, into[i + 2] = ~(uint32_t)z;
    }
    for (; i < chunks; i++) {
        const uint64_t *a = (const void *)(data + i * CHUNK);
        uint64_t x = ~0u;
        for (int k = 0; k < CHUNK / 8; k++) x = _mm_crc32_u64(x, a[k]);
        into[i] = ~(uint32_t)x;
    }
}

static void check(const uint8_t *data, size_t chunks, const uint32_t *crcs) {
    static uint32_t found[1 << 20];
    crcs_of(data, chunks, found);
    if (memcmp(found, crcs, chunks * 4)) {
        fprintf(stderr, "a CRC does not fit\n");
        exit(1);
    }
}

// Fresh tmpfs memory, allocated, as a replica's is.
static void *fresh(size_t bytes) {
    int file = memfd_create("probe", 0);
    if (file < 0 || fallocate(file, 0, 0, bytes)) die("memory");
    void *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) die("mmap");
    close(file);
    return memory;
}

static struct ibv_mr *registered(struct rdma_cm_id *id, void *memory, size_t bytes, int access) {
    struct ibv_mr *region = ibv_reg_mr(id->pd, memory, bytes, access);
    if (!region) die("registering");
    return region;
}

static struct rdma_cm_id *endpoint(const char *address, const char *port, int passive) {
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST | (passive ? RAI_PASSIVE : 0)};
    struct rdma_addrinfo *found;
    struct ibv_qp_init_attr attributes = {
        .cap = {.max_send_wr = SEND_DEPTH, .max_recv_wr = WINDOW, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct rdma_cm_id *id;
    if (rdma_getaddrinfo(address, port, &hints, &found)) die("rdma_getaddrinfo");
    if (rdma_create_ep(&id, found, NULL, &attributes)) die("rdma_create_ep");
    return id;
}

static uint8_t *messages;
static struct ibv_mr *messages_region;

static void post_receives(struct rdma_cm_id *id) {
    messages = fresh(4096 * 4);
    messages_region = registered(id, messages, 4096 * 4, IBV_ACCESS_LOCAL_WRITE);
    for (int i = 0; i < WINDOW; i++)
        if (rdma_post_recv(id, messages + i * MESSAGE, messages + i * MESSAGE, MESSAGE, messages_region)) die("receive");
}

// The next message; it stays there until it is posted again.
static void *receive(struct rdma_cm_id *id) {
    struct ibv_wc done;
    int got = rdma_get_recv_comp(id, &done);
    if (got <= 0 || done.status) return NULL;
    return (void *)(uintptr_t)done.wr_id;
}

static void post_again(struct rdma_cm_id *id, void *message) {
    if (rdma_post_recv(id, message, message, MESSAGE, messages_region)) die("receive");
}

static void send_message(struct rdma_cm_id *id, const void *message, size_t length, int number) {
    uint8_t *buffer = messages + WINDOW * MESSAGE + number % WINDOW * MESSAGE;
    memcpy(buffer, message, length);
    if (rdma_post_send(id, NULL, buffer, length, messages_region, IBV_SEND_SIGNALED)) die("send");
}

static void sent(struct rdma_cm_id *id) {
    struct ibv_wc done;
    if (rdma_get_send_comp(id, &done) <= 0 || done.status) {
        fprintf(stderr, "an operation failed: %s\n", ibv_wc_status_str(done.status));
        exit(1);
    }
}

static int serve(char **argument) {
    size_t mebibytes = atol(argument[2]), bytes = mebibytes << 20, crc_bytes = bytes / CHUNK * 4;
    uint32_t passes = atoi(argument[3]);
    struct rdma_cm_id *listener = endpoint(argument[0], argument[1], 1), *id;
    struct offer *offer = fresh(4096);
    uint8_t *data[PASSES_MAX];
    uint32_t *crcs[PASSES_MAX];
    uint64_t *source = fresh(bytes);
    for (size_t i = 0; i < bytes / 8; i++) source[i] = i * 0x9E3779B97F4A7C15ull;
    for (uint32_t i = 0; i < passes; i++) data[i] = fresh(bytes), crcs[i] = fresh(crc_bytes);
    // Only now: the kernel gives up a connection that is not accepted within seconds.
    if (rdma_listen(listener, 1)) die("rdma_listen");
    puts("listening");
    fflush(stdout);
    if (rdma_get_request(listener, &id)) die("rdma_get_request");
    struct ibv_mr *region = registered(id, source, bytes, IBV_ACCESS_REMOTE_READ);
    offer->read = (struct memory){(uintptr_t)source, region->rkey, mebibytes};
    offer->passes = passes;
    for (uint32_t i = 0; i < passes; i++) {
        int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        region = registered(id, data[i], bytes, access);
        offer->data[i] = (struct memory){(uintptr_t)data[i], region->rkey, mebibytes};
        region = registered(id, crcs[i], crc_bytes, access);
        offer->crcs[i] = (struct memory){(uintptr_t)crcs[i], region->rkey, 0};
    }
    region = registered(id, offer, 4096, IBV_ACCESS_REMOTE_READ);
    struct memory where = {(uintptr_t)offer, region->rkey, 0};
    post_receives(id);
    struct rdma_conn_param parameters = {
        .private_data = &where, .private_data_len = sizeof where, .responder_resources = 16, .initiator_depth = 16};
    if (rdma_accept(id, &parameters)) die("rdma_accept");
    struct slice *slice;
    for (int number = 0; (slice = receive(id)); number++) {
        struct slice taken = *slice;
        post_again(id, slice);
        if (taken.length & 1)
            check(data[taken.pass] + taken.first, taken.length / CHUNK, crcs[taken.pass] + taken.first / CHUNK);
        send_message(id, "checked", 8, number);
        sent(id);
    }
    return 0;
}

static struct rdma_cm_id *connected(char **argument, struct offer *offer) {
    struct rdma_cm_id *id = endpoint(argument[0], argument[1], 0);
    post_receives(id);
    struct rdma_conn_param parameters = {.responder_resources = 16, .initiator_depth = 16};
    if (rdma_connect(id, &parameters)) die("rdma_connect");
    struct memory where;
    memcpy(&where, id->event->param.conn.private_data, sizeof where);
    void *page = fresh(4096);
    struct ibv_mr *region = registered(id, page, 4096, IBV_ACCESS_LOCAL_WRITE);
    if (rdma_post_read(id, NULL, page, sizeof *offer, region, IBV_SEND_SIGNALED, where.address, where.key)) die("read");
    sent(id);
    memcpy(offer, page, sizeof *offer);
    return id;
}

static int client(const char *work, char **argument) {
    struct offer offer;
    struct rdma_cm_id *id = connected(argument, &offer);
    size_t bytes = (size_t)offer.read.mebibytes << 20, crc_bytes = bytes / CHUNK * 4, piece = atol(argument[2]);
    uint8_t *data = fresh(bytes);
    uint32_t *crcs = fresh(crc_bytes);
    struct ibv_mr *region = registered(id, data, bytes, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *crc_region = registered(id, crcs, crc_bytes, IBV_ACCESS_LOCAL_WRITE);
    for (size_t i = 0; i < bytes / 8; i++) ((uint64_t *)data)[i] = i * 0x9E3779B97F4A7C15ull;
    crcs_of(data, bytes / CHUNK, crcs);

    if (!strcmp(work, "latency")) {
        int count = atoi(argument[3]), checking = atoi(argument[4]), behind = atoi(argument[5]);
        double *took = calloc(count, sizeof *took);
        uint64_t place = 1;
        struct ibv_wc done;
        for (int i = 0; i < count; i++) {
            place = place * 6364136223846793005ull + 1442695040888963407ull;
            size_t at = (place >> 33) % (bytes / piece) * piece;
            double started = now();
            struct ibv_sge first = {(uintptr_t)data + at, piece, region->lkey}, second = {(uintptr_t)data, behind, region->lkey};
            struct ibv_send_wr *refused, last = {.sg_list = &second, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
            last.send_flags = IBV_SEND_SIGNALED;
            last.wr.rdma.remote_addr = offer.read.address;
            last.wr.rdma.rkey = offer.read.key;
            struct ibv_send_wr read = {.next = behind ? &last : NULL, .sg_list = &first, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
            read.send_flags = behind ? 0 : IBV_SEND_SIGNALED;
            read.wr.rdma.remote_addr = offer.read.address + at;
            read.wr.rdma.rkey = offer.read.key;
            if (ibv_post_send(id->qp, &read, &refused)) die("read");
            int polled;
            while ((polled = ibv_poll_cq(id->send_cq, 1, &done)) == 0) {}
            if (polled < 0 || done.status) die("poll");
            if (checking) check(data + at, piece / CHUNK, crcs + at / CHUNK);
            took[i] = (now() - started) * 1e6;
        }
        for (int i = 1; i < count; i++)  // few enough
            for (int k = i; k > 0 && took[k - 1] > took[k]; k--) {
                double swap = took[k];
                took[k] = took[k - 1], took[k - 1] = swap;
            }
        // The nearest ranks, as of ours.
        printf("%.3f %.3f\n", took[(count + 1) / 2 - 1], took[(count * 99 + 99) / 100 - 1]);
        return 0;
    }

    size_t depth = atol(argument[3]), pieces = bytes / piece;
    int passes = atoi(argument[4]), checking = atoi(argument[5]), writing = !strcmp(work, "write"), number = 0;
    for (int pass = 0; pass < passes; pass++) {
        double started = now();
        size_t posted = 0, done = 0, answered = 0;
        while (done < pieces) {
            while (posted < pieces && posted - done < depth) {
                size_t at = posted * piece;
                if (writing) {
                    struct memory to = offer.data[pass], to_crcs = offer.crcs[pass];
                    if (checking) crcs_of(data + at, piece / CHUNK, crcs + at / CHUNK);
                    if (rdma_post_write(id, NULL, data + at, piece, region, 0, to.address + at, to.key)) die("write");
                    size_t table = at / CHUNK * 4;
                    if (checking && rdma_post_write(id, NULL, (uint8_t *)crcs + table, piece / CHUNK * 4, crc_region, 0,
                                                    to_crcs.address + table, to_crcs.key))
                        die("write");
                    struct slice slice = {pass, at, piece | checking};
                    send_message(id, &slice, sizeof slice, number++);
                } else if (rdma_post_read(id, NULL, data + at, piece, region, IBV_SEND_SIGNALED, offer.read.address + at,
                                          offer.read.key))
                    die("read");
                posted++;
            }
            sent(id);
            if (writing) {
                void *answer = receive(id);
                if (!answer) die("the answer");
                post_again(id, answer);
                answered++;
            } else if (checking) {
                check(data + done * piece, piece / CHUNK, crcs + done * piece / CHUNK);
            }
            done++;
        }
        printf("%.6f\n", now() - started);
    }
    return 0;
}

int main(int count, char **argument) {
    if (count == 6 && !strcmp(argument[1], "serve")) return serve(argument + 2);
    if (count == 8) return client(argument[1], argument + 2);
    fprintf(stderr, "see the head of rdma_probe.c\n");
    return 2;
}
