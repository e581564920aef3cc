/* The algorithm of terashuf, written out for a comparison: terashuf BYTES FOLDER < lines > shuffled.
 *
 * A buffer is filled with lines, their order is shuffled, and they are written to a temporary file, until the input ends.
 * Then, again and again, an equal share of the buffer is filled with lines from each of those files, and the lines in it
 * are shuffled and written. One thread; lines are found letter by letter; five draws make one random number: as there.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *buffer;
static size_t *lines, count, room;

static void remember(size_t at) {
    if (count == room) {
        room = room ? 2 * room : 1 << 16;
        lines = realloc(lines, room * sizeof *lines);
    }
    lines[count++] = at;
}

static unsigned long long draw(void) {
    unsigned long long number = 0;
    for (int i = 0; i < 5; i++)
        number = number << 15 | (rand() & 0x7fff);
    return number;
}

static void shuffle_and_write(FILE *out) {
    for (size_t left = count; left > 0; left--) {
        size_t chosen = draw() % left, line = lines[chosen], length = 0;
        lines[chosen] = lines[left - 1];
        while (buffer[line + length] != '\n')
            length++;
        fwrite(buffer + line, 1, length + 1, out);
    }
    count = 0;
}

static FILE *temporary(const char *folder) {
    int file = open(folder, O_TMPFILE | O_RDWR, 0600);
    if (file < 0) {
        perror(folder);
        exit(1);
    }
    return fdopen(file, "w+");
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    size_t size = strtoull(argv[1], NULL, 10), filled = 0, files = 0;
    FILE *parts[4096];
    buffer = malloc(size);
    for (int more = 1; more;) {
        while (filled < size) {
            size_t want = size - filled < 65536 ? size - filled : 65536;
            size_t got = fread(buffer + filled, 1, want, stdin);
            filled += got;
            if (got == 0) {
                more = 0;
                break;
            }
        }
        size_t begin = 0;
        for (size_t at = 0; at < filled; at++)
            if (buffer[at] == '\n') {
                remember(begin);
                begin = at + 1;
            }
        if (count == 0)
            break;
        parts[files] = temporary(argv[2]);
        shuffle_and_write(parts[files++]);
        memmove(buffer, buffer + begin, filled - begin);
        filled -= begin;
    }
    for (size_t i = 0; i < files; i++)
        rewind(parts[i]);
    for (size_t open = files, all = files; open > 0;) {
        size_t at = 0, share = size / all;
        for (size_t i = 0; i < all; i++) {
            size_t end = at + share;
            while (parts[i] && at + 1024 < end) { /* the longest line has 512 letters */
                size_t begin = at;
                int letter;
                while ((letter = fgetc(parts[i])) != EOF) {
                    buffer[at++] = (char)letter;
                    if (letter == '\n')
                        break;
                }
                if (at == begin) {
                    fclose(parts[i]);
                    parts[i] = NULL;
                    open--;
                    break;
                }
                remember(begin);
            }
        }
        shuffle_and_write(stdout);
    }
    return fflush(stdout) != 0;
}
