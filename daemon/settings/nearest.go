package settings

// Nearest returns the key that was most likely meant by a word that is none, or "" if no key is near.
func Nearest(word string, keys []string) (nearest string) {
	best := max(1, len(word)/3) + 1 // more changed letters than this make another word
	for _, key := range keys {
		if d := distance(word, key); d < best {
			best, nearest = d, key
		}
	}
	return nearest
}

// distance returns how many letters to insert, remove or replace to get from a to b. Underscores count as dashes, and
// letters of both cases as equal.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if plain(a[i]) != plain(b[j]) {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func plain(c byte) byte {
	switch {
	case c == '_':
		return '-'
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	}
	return c
}
