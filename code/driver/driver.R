# Runs cells of R and reports their results. code/cell/protocol.go defines the protocol. Requests come on standard input.
local({
  longest <- 262144L # maximum characters of a text; the rest is cut
  requests <- file("stdin", "rb")
  mark <- name <- ""
  plots <- tempfile("plots")
  dir.create(plots)

  take <- function(n) {
    bytes <- raw()
    while (length(bytes) < n) {
      more <- readBin(requests, "raw", n - length(bytes))
      if (length(more) == 0L) quit("no", 0L, FALSE)
      bytes <- c(bytes, more)
    }
    bytes
  }

  line <- function() {
    bytes <- raw()
    while ((b <- take(1L)) != as.raw(10L)) bytes <- c(bytes, b)
    rawToChar(bytes)
  }

  utf8 <- function(n) {
    text <- rawToChar(take(n))
    Encoding(text) <- "UTF-8"
    text
  }

  setting <- function(i) {
    part <- strsplit(line(), " ")[[1L]]
    list(name = part[1L], value = utf8(as.integer(part[2L])))
  }

  # enter sets what holds for one cell, a variable of the environment or the working directory, and keeps how to undo
  # it.
  before <- list()
  enter <- function(s) {
    if (s$name == "/") {
      here <- setwd(s$value)
      undo <- function() setwd(here)
    } else {
      had <- Sys.getenv(s$name, NA_character_)
      set <- function(value) do.call(Sys.setenv, structure(list(value), names = s$name))
      set(s$value)
      undo <- function() if (is.na(had)) Sys.unsetenv(s$name) else set(had)
    }
    before <<- c(before, undo)
  }

  # put writes one record, in pieces that are small enough for an atomic write: R writes the argument of cat at once.
  put <- function(kind, text = "", to = stdout()) {
    text <- enc2utf8(text)
    count <- nchar(text, "chars", allowNA = TRUE)
    if (is.na(count)) {
      text <- iconv(text, "UTF-8", "UTF-8", sub = "?")
      count <- nchar(text)
    }
    for (at in seq(1L, max(1L, count), by = 950L)) {
      piece <- substr(text, at, at + 949L)
      cat(paste0("\x1e", mark, " ", kind, " ", nchar(piece, "bytes"), "\n", piece), file = to)
    }
    flush(to)
  }

  field <- function(name, text) {
    count <- nchar(text, "bytes")
    if (count > longest && name != "image/png") text <- paste0(substr(text, 1L, longest), "… [cut]")
    put("m", name)
    put("d", text)
  }

  digits <- strsplit("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", "")[[1L]]
  base64 <- function(bytes) {
    short <- (3L - length(bytes) %% 3L) %% 3L
    b <- matrix(as.integer(c(bytes, raw(short))), nrow = 3L)
    all <- b[1L, ] * 65536L + b[2L, ] * 256L + b[3L, ]
    out <- digits[rbind(all %/% 262144L, all %/% 4096L %% 64L, all %/% 64L %% 64L, all %% 64L) + 1L]
    if (short > 0L) out[length(out) - seq_len(short) + 1L] <- "="
    paste(out, collapse = "")
  }

  # figures reports the figures that were drawn, page by page.
  figures <- function() {
    if (!"grDevices" %in% loadedNamespaces()) return()
    grDevices::graphics.off()
    for (page in list.files(plots, full.names = TRUE)) {
      put("r", "figure")
      field("text/plain", "<plot>")
      field("image/png", base64(readBin(page, "raw", file.size(page))))
      put("m")
      unlink(page)
    }
  }

  text <- function(value) paste(utils::capture.output(if (isS4(value)) methods::show(value) else print(value)), collapse = "\n")

  called <- function(condition) {
    call <- conditionCall(condition)
    text <- if (is.null(call)) "" else deparse(call, nlines = 1L)[1L]
    if (text %in% c("", "eval(expression, globalenv())") || startsWith(text, "parse(text = code")) "" else paste0(" in ", text, " :")
  }

  warned <- function(warnings) {
    if (length(warnings) == 0L) return()
    texts <- vapply(warnings, function(w) paste0(if (nzchar(called(w))) paste0("In", sub("^ in", "", called(w)), "\n  "), conditionMessage(w)), "")
    if (length(texts) > 1L) texts <- paste0(seq_along(texts), ": ", texts)
    cat(if (length(texts) > 1L) "Warning messages:\n" else "Warning message:\n", paste0(texts, "\n"), sep = "", file = stderr())
  }

  # evaluate runs one expression. It returns its value, and whether the value is visible.
  evaluate <- function(expression) {
    warnings <- list()
    on.exit(warned(warnings))
    withCallingHandlers(withVisible(eval(expression, globalenv())), warning = function(w) {
      if (getOption("warn") >= 2L) stop(w)
      if (length(warnings) < 50L) warnings[[length(warnings) + 1L]] <<- w
      tryInvokeRestart("muffleWarning")
    })
  }

  run <- function(code) {
    all <- parse(text = code, keep.source = TRUE, srcfile = srcfilecopy(name, strsplit(code, "\n")[[1L]]))
    for (i in seq_along(all)) {
      got <- evaluate(all[i])
      if (!got$visible) next
      if (i < length(all)) {
        if (isS4(got$value)) methods::show(got$value) else print(got$value)
      } else {
        shown <- text(got$value)
        put("r", "value")
        field("text/plain", shown)
      }
    }
  }

  fail <- function(kind, message, told) {
    put("e")
    field("name", kind)
    field("message", message)
    field("traceback", told)
    TRUE
  }

  # cell runs one cell and reports whether it failed.
  cell <- function(code, settings) {
    failed <- tryCatch({
      for (s in settings) enter(s)
      run(code)
      FALSE
    }, error = function(e) {
      message <- conditionMessage(e)
      fail(class(e)[1L], message, paste0("Error", if (nzchar(called(e))) called(e) else ":", " ", message))
    }, interrupt = function(e) fail("Interrupted", "the cell was interrupted", "Interrupted: the cell was interrupted"))
    figures()
    failed
  }

  options(device = function(...) grDevices::png(file.path(plots, "%06d.png"), width = 640, height = 480))
  repeat {
    head <- strsplit(line(), " ")[[1L]]
    mark <- head[1L]
    name <- paste0("<cell ", head[2L], ">")
    settings <- if (length(head) > 4L) lapply(seq_len(as.integer(head[5L])), setting)
    code <- utf8(as.integer(head[4L]))
    failed <- cell(code, settings)
    for (undo in rev(before)) tryCatch(undo(), error = function(e) cat(conditionMessage(e), "\n", file = stderr()))
    before <- list()
    if (head[3L] == "once") quit("no", if (failed) 1L else 0L)
    put("z", to = stderr())
    put("z")
  }
})
