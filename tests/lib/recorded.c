#define _GNU_SOURCE
#include "tests/lib/recorded.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/check.h"

/* NAME.503.txt says it, or the error that the body is. */
static int status_of(const char *name, const char *body)
{
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
        if (strspn(dot + 1, "0123456789") == 3 && dot[4] == '.')
            return atoi(dot + 1);
    const char *code = strstr(body, "\"code\":");
    return strncmp(body, "{\"error\":", 9) == 0 && code != NULL ? atoi(code + 7) : 200;
}

static void load_one(const char *path, struct recorded *one)
{
    struct stat status;
    FILE *file = fopen(path, "rb");
    if (file == NULL || fstat(fileno(file), &status) != 0)
        fail_msg("%s cannot be read", path);
    one->body = malloc((size_t)status.st_size + 1);
    one->size = fread(one->body, 1, (size_t)status.st_size, file);
    fclose(file);
    while (one->size > 0 && strchr(" \r\n", one->body[one->size - 1]) != NULL &&
           strstr(path, ".txt") == NULL) /* in text the end of a line counts */
        one->size--;
    one->body[one->size] = '\0';
    one->status = status_of(one->name, one->body);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct recorded *)a)->name, ((const struct recorded *)b)->name);
}

static size_t load_folder(const char *engine, const char *under, struct recorded *all, size_t count)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s/%s", RECORDED_DIR, engine, under);
    DIR *folder = opendir(path);
    if (folder == NULL)
        fail_msg("%s cannot be read", path);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct recorded *one = &all[count];
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "README.md") == 0)
            continue;
        snprintf(one->name, sizeof one->name, "%.60s%.60s", under, entry->d_name);
        if (entry->d_type == DT_DIR) {
            char deeper[130];
            snprintf(deeper, sizeof deeper, "%s/", one->name);
            count = load_folder(engine, deeper, all, count);
            continue;
        }
        assert_true(count < RECORDED_MAX);
        snprintf(path, sizeof path, "%s/%s/%s", RECORDED_DIR, engine, one->name);
        load_one(path, one);
        count++;
    }
    closedir(folder);
    return count;
}

size_t recorded_load(const char *engine, struct recorded *all)
{
    size_t count = load_folder(engine, "", all, 0);
    qsort(all, count, sizeof *all, by_name);
    return count;
}

const struct recorded *recorded_find(const struct recorded *all, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}
