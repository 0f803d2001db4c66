// Command gofetch prints what is at a URL.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	r, err := http.Get(os.Args[1])
	if err == nil {
		_, err = io.Copy(os.Stdout, r.Body)
	}
	if err != nil {
		log.Fatal(err)
	}
}
