// The least that a datanode can do, as a yardstick for the CPU time of ours: reads by sendfile, writes into a file on
// a tmpfs with every CRC checked by the processor's own instruction. Nothing is registered, reported, forwarded,
// recovered, limited or timed out. It stands in for a datanode that was stopped, at its port and on its files.
//
//   minimal_datanode PORT FINALIZED_DIR WRITE_DIR
//
// FINALIZED_DIR: .../current/BP-.../current/finalized of the stopped datanode. WRITE_DIR: where written blocks go.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 512, PACKET_DATA = 64 << 10, HEADER = 25, OP_WRITE = 80, OP_READ = 81, MESSAGE_MAX = 64 << 10 };
static const char *finalized_dir, *write_dir;

static int receive_all(int socket, void *into, size_t length) {
    for (char *at = into; length > 0;) {
        ssize_t got = recv(socket, at, length, MSG_WAITALL);
        if (got <= 0) return -1;
        at += got;
        length -= got;
    }
    return 0;
}

static int send_all(int socket, const void *from, size_t length, int flags) {
    for (const char *at = from; length > 0;) {
        ssize_t sent = send(socket, at, length, flags | MSG_NOSIGNAL);
        if (sent <= 0) return -1;
        at += sent;
        length -= sent;
    }
    return 0;
}

// A message behind its varint length; -1 at the connection's end.
static ssize_t receive_message(int socket, uint8_t *into) {
    size_t length = 0;
    for (int shift = 0; shift < 28; shift += 7) {
        uint8_t byte;
        if (receive_all(socket, &byte, 1)) return -1;
        length |= (size_t)(byte & 127) << shift;
        if (byte < 128) return length <= MESSAGE_MAX && !receive_all(socket, into, length) ? (ssize_t)length : -1;
    }
    return -1;
}

static uint64_t varint(const uint8_t **at, const uint8_t *end) {
    uint64_t value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) break;
    }
    return value;
}

// Field `wanted` of a protobuf message: a number into *number, or a nested message's bounds into *from and *to.
static void field(const uint8_t *at, const uint8_t *end, unsigned wanted, uint64_t *number, const uint8_t **from,
                  const uint8_t **to) {
    while (at < end) {
        uint64_t key = varint(&at, end);
        uint64_t value = 0;
        const uint8_t *start = at;
        switch (key & 7) {
        case 0: value = varint(&at, end); break;
        case 1: at += 8; break;
        case 2: value = varint(&at, end); start = at; at += value; break;
        case 5: at += 4; break;
        default: return;
        }
        if (at > end || key >> 3 != wanted) continue;
        if (number) *number = value;
        if (from) *from = start, *to = at;
        return;
    }
}

// Block id and stamp of header { baseHeader { block } }, which stands first in both requests.
static void block_of(const uint8_t *message, size_t length, uint64_t *id, uint64_t *stamp) {
    const uint8_t *from = message, *to = message + length;
    for (int level = 0; level < 3; level++) field(from, to, 1, NULL, &from, &to);
    field(from, to, 2, id, NULL, NULL);
    field(from, to, 3, stamp, NULL, NULL);
}

static void packet_header(uint8_t *at, uint32_t checksums, uint64_t offset, uint64_t sequence, int last, uint32_t data) {
    uint32_t length = htonl(4 + checksums + data);
    memcpy(at, &length, 4);
    at[4] = 0, at[5] = HEADER;
    at[6] = 0x09, memcpy(at + 7, &offset, 8);
    at[15] = 0x11, memcpy(at + 16, &sequence, 8);
    at[24] = 0x18, at[25] = last;
    at[26] = 0x25, memcpy(at + 27, &data, 4);
}

static int serve_read(int socket, const uint8_t *message, size_t length) {
    uint64_t id = 0, stamp = 0, offset = 0, wanted = 0;
    block_of(message, length, &id, &stamp);
    field(message, message + length, 2, &offset, NULL, NULL);
    field(message, message + length, 3, &wanted, NULL, NULL);
    char path[PATH_MAX];
    int place = snprintf(path, sizeof path, "%s/subdir%d/subdir%d/blk_%llu", finalized_dir, (int)(id >> 16 & 31),
                         (int)(id >> 8 & 31), (unsigned long long)id);
    int data = open(path, O_RDONLY);
    snprintf(path + place, sizeof path - place, "_%llu.meta", (unsigned long long)stamp);
    int meta = open(path, O_RDONLY);
    struct stat status;
    if (data < 0 || meta < 0 || fstat(data, &status)) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    uint64_t at = offset / CHUNK * CHUNK, end = (offset + wanted + CHUNK - 1) / CHUNK * CHUNK;
    if (end > (uint64_t)status.st_size) end = status.st_size;
    uint8_t reply[32] = {0, 0x08, 0, 0x22, 0, 0x0a, 5, 0x08, 2, 0x10, 0x80, 0x04, 0x10};
    int used = 13;
    for (uint64_t rest = at;; rest >>= 7) {
        reply[used++] = (rest & 127) | (rest > 127 ? 128 : 0);
        if (rest < 128) break;
    }
    reply[0] = used - 1, reply[4] = used - 5;
    uint8_t head[6 + HEADER + 4 * PACKET_DATA / CHUNK];
    off_t from = at;
    uint64_t sequence = 0;
    int failed = send_all(socket, reply, used, MSG_MORE);
    while (!failed && at < end) {
        uint32_t count = end - at < PACKET_DATA ? end - at : PACKET_DATA;
        uint32_t checksums = (count + CHUNK - 1) / CHUNK * 4;
        packet_header(head, checksums, at, sequence++, 0, count);
        failed = pread(meta, head + 6 + HEADER, checksums, 7 + at / CHUNK * 4) != checksums ||
                 send_all(socket, head, 6 + HEADER + checksums, MSG_MORE);
        at += count;
        while (!failed && from < (off_t)at) failed = sendfile(socket, data, &from, at - from) <= 0;
    }
    close(data);
    close(meta);
    if (failed) return -1;
    packet_header(head, 0, at, sequence, 1, 0);
    uint8_t verdict[MESSAGE_MAX];
    return send_all(socket, head, 6 + HEADER, 0) || receive_message(socket, verdict) < 0 ? -1 : 0;
}

static uint32_t crc32c(const uint8_t *at, size_t length) {
    uint64_t crc = 0xffffffff;
    for (; length >= 8; at += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; length > 0; at++, length--) crc = _mm_crc32_u8(crc, *at);
    return ~(uint32_t)crc;
}

// Three full chunks at once: the instruction takes three cycles and can start one each.
static void crc32c_of_three(const uint8_t *at, uint32_t crcs[3]) {
    uint64_t a = 0xffffffff, b = a, c = a, x, y, z;
    for (int i = 0; i < CHUNK; i += 8) {
        memcpy(&x, at + i, 8), memcpy(&y, at + CHUNK + i, 8), memcpy(&z, at + 2 * CHUNK + i, 8);
        a = _mm_crc32_u64(a, x), b = _mm_crc32_u64(b, y), c = _mm_crc32_u64(c, z);
    }
    crcs[0] = ~(uint32_t)a, crcs[1] = ~(uint32_t)b, crcs[2] = ~(uint32_t)c;
}

static int crcs_fit(const uint8_t *checksums, const uint8_t *data, size_t length) {
    uint32_t found[3], wanted;
    while (length > 0) {
        int chunks = length >= 3 * CHUNK ? 3 : 1;
        size_t covered = chunks == 3 ? 3 * CHUNK : length < CHUNK ? length : CHUNK;
        if (chunks == 3) crc32c_of_three(data, found);
        else found[0] = crc32c(data, covered);
        for (int i = 0; i < chunks; i++, checksums += 4) {
            memcpy(&wanted, checksums, 4);
            if (ntohl(wanted) != found[i]) return 0;
        }
        data += covered, length -= covered;
    }
    return 1;
}

static int serve_write(int socket, const uint8_t *message, size_t length) {
    uint64_t id = 0, stamp = 0;
    block_of(message, length, &id, &stamp);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/blk_%llu", write_dir, (unsigned long long)id);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    strcat(path, ".crcs");
    int crcs = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    static const uint8_t ok[] = {4, 0x08, 0, 0x12, 0};
    uint8_t *packet = malloc(16 << 20);
    int last = 0, failed = file < 0 || crcs < 0 || !packet || send_all(socket, ok, sizeof ok, 0);
    while (!failed && !last) {
        uint8_t prefix[6];
        if (receive_all(socket, prefix, 6)) break;
        uint32_t plen = (uint32_t)prefix[0] << 24 | prefix[1] << 16 | prefix[2] << 8 | prefix[3];
        uint32_t hlen = prefix[4] << 8 | prefix[5];
        if (plen < 4 || plen + hlen > 16 << 20 || receive_all(socket, packet, hlen + plen - 4)) break;
        // offsetInBlock, seqno, lastPacketInBlock, dataLen stand at fixed places.
        uint64_t offset, sequence;
        uint32_t count;
        memcpy(&offset, packet + 1, 8), memcpy(&sequence, packet + 10, 8), memcpy(&count, packet + 21, 4);
        last = packet[19];
        if (count > plen - 4) break;
        const uint8_t *checksums = packet + hlen, *data = packet + hlen + plen - 4 - count;
        failed = !crcs_fit(checksums, data, count) || pwrite(file, data, count, offset) != (ssize_t)count ||
                 pwrite(crcs, checksums, data - checksums, offset / CHUNK * 4) != data - checksums;
        uint8_t ack[24] = {0, 0x08};
        int used = 2;
        for (uint64_t rest = sequence << 1 ^ -(sequence >> 63);; rest >>= 7) {
            ack[used++] = (rest & 127) | (rest > 127 ? 128 : 0);
            if (rest < 128) break;
        }
        static const uint8_t success[] = {0x10, 0, 0x18, 0, 0x22, 1, 0};
        memcpy(ack + used, success, sizeof success);
        ack[0] = used + sizeof success - 1;
        failed = failed || send_all(socket, ack, used + sizeof success, 0);
    }
    close(file);
    close(crcs);
    free(packet);
    return -1;
}

static void *serve(void *argument) {
    int socket = (int)(intptr_t)argument;
    uint8_t *message = malloc(MESSAGE_MAX), head[3];
    while (message && !receive_all(socket, head, 3)) {
        ssize_t length = receive_message(socket, message);
        if (length < 0 || (head[2] != OP_READ && head[2] != OP_WRITE)) break;
        if (head[2] == OP_READ ? serve_read(socket, message, length) : serve_write(socket, message, length)) break;
    }
    free(message);
    close(socket);
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 4) return fprintf(stderr, "usage: minimal_datanode PORT FINALIZED_DIR WRITE_DIR\n"), 2;
    finalized_dir = arguments[2], write_dir = arguments[3];
    signal(SIGPIPE, SIG_IGN);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    // Not paced on the loopback, whatever the system's default is: ours is not either.
    setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128)) return perror("bind"), 1;
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0) continue;
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)connection)) close(connection);
        else pthread_detach(thread);
    }
}
