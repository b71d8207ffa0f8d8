# A terminal's screen (tmux capture-pane -e -p) as SVG: one text element a run of the same look.
BEGIN {
    cell = 8.4; line = 18; columns = 96
    color[31] = "#ff6b68"; color[33] = "#e5c07b"; color[35] = "#c678dd"
}

function escaped(text)
{
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    return text
}

# SGR: bold, dim, reverse and foreground are all that leasetop uses.
function look(codes,    parts, count, i)
{
    count = split(codes, parts, ";")
    if (count == 0)
        parts[count = 1] = 0
    for (i = 1; i <= count; i++) {
        if (parts[i] + 0 == 0) { bold = dim = reversed = 0; fill = "" }
        else if (parts[i] == 1) bold = 1
        else if (parts[i] == 2) dim = 1
        else if (parts[i] == 7) reversed = 1
        else if (parts[i] == 22) bold = dim = 0
        else if (parts[i] == 27) reversed = 0
        else if (parts[i] == 39) fill = ""
        else if (parts[i] in color) fill = color[parts[i]]
    }
}

function put(text,    word, foreground)
{
    if (text == "")
        return
    foreground = fill == "" ? "#d7dae0" : fill
    if (reversed)
        out = out sprintf("<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n",
                          10 + x * cell, NR * line - 4, length(text) * cell, line, foreground)
    while (match(text, /[^ ]+( [^ ]+)*/)) { # words that two blanks part stand by themselves
        word = substr(text, RSTART, RLENGTH)
        x += RSTART - 1
        out = out sprintf("<text x=\"%.1f\" y=\"%d\" textLength=\"%.1f\" fill=\"%s\"%s%s>%s</text>\n",
                          10 + x * cell, NR * line + 10, length(word) * cell,
                          reversed ? "#1e2127" : foreground, bold ? " font-weight=\"bold\"" : "",
                          dim ? " opacity=\"0.65\"" : "", escaped(word))
        x += RLENGTH
        text = substr(text, RSTART + RLENGTH)
    }
    x += length(text)
}

{
    x = 0
    count = split($0, runs, "\033\\[")
    put(runs[1])
    for (r = 2; r <= count; r++) {
        end = index(runs[r], "m")
        look(substr(runs[r], 1, end - 1))
        put(substr(runs[r], end + 1))
    }
}

END {
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" ", \
        columns * cell + 20, (NR + 1) * line + 4
    printf "font-family=\"Menlo,Consolas,DejaVu Sans Mono,monospace\" font-size=\"14\" "
    printf "xml:space=\"preserve\" role=\"img\">\n"
    print "<title>leasetop on a laptop, over a fleet of three hosts</title>"
    print "<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1e2127\"/>"
    printf "%s</svg>\n", out
}
