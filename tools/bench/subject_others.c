/* What one would use instead: a bare lock, SQLite, Redis. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "tools/bench/bench.h"

/* ---- flock alone: the floor of the host tier, which takes two such pairs ---------------------- */

static void *flock_open(const struct bench_place *place)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/flock", place->directory);
    int *fd = malloc(sizeof *fd);
    if (fd && (*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0) {
        perror(path);
        free(fd);
        fd = NULL;
    }
    return fd;
}

static bool flock_once(void *state)
{
    int fd = *(int *)state;
    return flock(fd, LOCK_EX) == 0 && flock(fd, LOCK_UN) == 0;
}

static void flock_close(void *state)
{
    close(*(int *)state);
    free(state);
}

const struct subject subject_flock = {.name = "flock alone",
                                      .what = "EX+UN, once",
                                      .processes_max = BENCH_PROCESSES_MAX,
                                      .open = flock_open,
                                      .once = flock_once,
                                      .close = flock_close};

/* ---- SQLite: WAL, no fsync at all, statements prepared ---------------------------------------- */

enum { BEGIN, INSERT, DELETE, COMMIT, ROLLBACK, STATEMENTS };

struct database {
    sqlite3 *handle;
    sqlite3_stmt *statements[STATEMENTS];
};

static void sqlite_close(void *state)
{
    struct database *database = state;
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(database->statements[i]);
    sqlite3_close(database->handle);
    free(database);
}

static bool sqlite_prepare(struct database *database)
{
    static const char *const texts[STATEMENTS] = {
        [BEGIN] = "BEGIN IMMEDIATE",
        [INSERT] = "INSERT INTO leases (provider, pid, host, label, state, deadline_ns)"
                   " SELECT 'bench', ?1, 'host', 'bench_host', 'held', ?2"
                   " WHERE (SELECT count(*) FROM leases WHERE provider = 'bench') < ?3",
        [DELETE] = "DELETE FROM leases WHERE id = ?1",
        [COMMIT] = "COMMIT",
        [ROLLBACK] = "ROLLBACK",
    };
    for (int i = 0; i < STATEMENTS; i++)
        if (sqlite3_prepare_v3(database->handle, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &database->statements[i], NULL) != SQLITE_OK)
            return false;
    return true;
}

static void *sqlite_open(const struct bench_place *place)
{
    static const char set_up[] =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"
        "CREATE TABLE IF NOT EXISTS leases (id INTEGER PRIMARY KEY AUTOINCREMENT,"
        " provider TEXT NOT NULL, pid INTEGER, host TEXT, label TEXT, state TEXT,"
        " deadline_ns INTEGER);"
        "CREATE INDEX IF NOT EXISTS leases_of ON leases (provider);";
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/sqlite", place->directory);
    struct database *database = calloc(1, sizeof *database);
    if (!database)
        return NULL;
    bool ok = sqlite3_open(path, &database->handle) == SQLITE_OK;
    ok = ok && sqlite3_busy_timeout(database->handle, 10000) == SQLITE_OK;
    ok = ok && sqlite3_exec(database->handle, set_up, NULL, NULL, NULL) == SQLITE_OK;
    if (ok && sqlite_prepare(database))
        return database;
    fprintf(stderr, "bench: sqlite: %s\n", sqlite3_errmsg(database->handle));
    sqlite_close(database);
    return NULL;
}

static bool run(sqlite3_stmt *statement)
{
    int result = sqlite3_step(statement);
    sqlite3_reset(statement);
    return result == SQLITE_DONE;
}

/* One statement in a transaction that takes the write lock at its beginning. */
static bool transact(struct database *database, sqlite3_stmt *statement)
{
    if (!run(database->statements[BEGIN]))
        return false;
    if (run(statement) && run(database->statements[COMMIT]))
        return true;
    run(database->statements[ROLLBACK]);
    return false;
}

static bool sqlite_once(void *state)
{
    struct database *database = state;
    sqlite3_stmt *insert = database->statements[INSERT], *delete = database->statements[DELETE];
    sqlite3_bind_int64(insert, 1, getpid());
    sqlite3_bind_int64(insert, 2, bench_now_ns() + INT64_C(10000000000));
    sqlite3_bind_int64(insert, 3, BENCH_SLOTS);
    if (!transact(database, insert) || sqlite3_changes(database->handle) != 1)
        return false;
    sqlite3_bind_int64(delete, 1, sqlite3_last_insert_rowid(database->handle));
    return transact(database, delete);
}

const struct subject subject_sqlite = {.name = "SQLite, WAL",
                                       .what = "insert+delete",
                                       .processes_max = BENCH_PROCESSES_MAX,
                                       .open = sqlite_open,
                                       .once = sqlite_once,
                                       .close = sqlite_close};

/* ---- Redis: a key a slot, over its unix socket ------------------------------------------------ */

struct connection {
    redisContext *context;
    char key[64], value[64], script[48];
};

static void redis_close(void *state)
{
    struct connection *connection = state;
    if (connection->context)
        redisFree(connection->context);
    free(connection);
}

/* Only who set the key deletes it: the usual script. */
static bool load_script(struct connection *connection)
{
    redisReply *reply = redisCommand(connection->context, "SCRIPT LOAD %s",
                                     "if redis.call('get',KEYS[1]) == ARGV[1] then "
                                     "return redis.call('del',KEYS[1]) else return 0 end");
    bool ok = reply && reply->type == REDIS_REPLY_STRING;
    if (ok)
        snprintf(connection->script, sizeof connection->script, "%s", reply->str);
    if (reply)
        freeReplyObject(reply);
    return ok;
}

static void *redis_open(const struct bench_place *place)
{
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        return NULL;
    connection->context = redisConnectUnix(place->redis);
    snprintf(connection->key, sizeof connection->key, "bench:%d", (int)getpid());
    snprintf(connection->value, sizeof connection->value, "%d:%lld", (int)getpid(),
             (long long)bench_now_ns());
    if (connection->context && !connection->context->err && load_script(connection))
        return connection;
    fprintf(stderr, "bench: redis at %s: %s\n", place->redis,
            connection->context ? connection->context->errstr : "no memory");
    redis_close(connection);
    return NULL;
}

static bool took_one(redisReply *reply)
{
    bool ok = reply && ((reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0) ||
                        (reply->type == REDIS_REPLY_INTEGER && reply->integer == 1));
    if (reply)
        freeReplyObject(reply);
    return ok;
}

static bool redis_set(struct connection *connection)
{
    return took_one(redisCommand(connection->context, "SET %s %s NX PX 10000", connection->key,
                                 connection->value));
}

static bool redis_once(void *state)
{
    struct connection *connection = state;
    return redis_set(connection) &&
           took_one(redisCommand(connection->context, "DEL %s", connection->key));
}

static bool redis_script_once(void *state)
{
    struct connection *connection = state;
    return redis_set(connection) &&
           took_one(redisCommand(connection->context, "EVALSHA %s 1 %s %s", connection->script,
                                 connection->key, connection->value));
}

const struct subject subject_redis = {.name = "Redis",
                                      .what = "SET NX PX + DEL",
                                      .processes_max = BENCH_PROCESSES_MAX,
                                      .needs_redis = true,
                                      .open = redis_open,
                                      .once = redis_once,
                                      .close = redis_close};
const struct subject subject_redis_script = {.name = "Redis",
                                             .what = "SET NX PX + script",
                                             .processes_max = BENCH_PROCESSES_MAX,
                                             .needs_redis = true,
                                             .open = redis_open,
                                             .once = redis_script_once,
                                             .close = redis_close};
