# The metrics of the second file against the first, as one JSON object.
NR == FNR {
    if (FNR == 1) title = $0
    else { wanted[$0] = 1; total++ }
    next
}
FNR == 1 { header = ($0 == title); next }
{
    rows++
    if ($0 in wanted && !($0 in seen)) good++
    seen[$0] = 1
    split($0, field, ",")
    key = field[1] "," field[2]
    if (rows > 1 && key < last) disorder = 1
    last = key
}
END {
    complete = good / total
    clean = rows ? good / rows : 0
    ordered = rows && !disorder
    reward = (header + complete + clean + ordered) / 4
    printf "{\"reward\": %.4f, \"header\": %d, \"complete\": %.4f, \"clean\": %.4f, \"sorted\": %d}\n", \
        reward, header, complete, clean, ordered
}
