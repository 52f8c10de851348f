-- The files that the advisor wants to know, read by a child that is killed in time.
local quoted, absolute = ...
local MAX_FILES = 24
local MAX_FILE = 262144

-- The advisor is not believed: whoever has taken it over would ask every user for keys. What is asked for must look like
-- a configuration or a script: nothing hidden but the cache of models, nothing of the system, nothing named like a secret.
local SYSTEM = { proc = true, sys = true, dev = true, etc = true, run = true }
local SECRETS = { "SECRET", "CREDENTIAL", "PASSW", "APIKEY", "API_KEY", "KEYRING" }
local SECRET_FILES = { "TOKEN[^I]", "TOKEN$", "TOKENI[^Z]", "AUTH", "^ID_", "%.PEM$", "%.KEY$", "%.P12$", "^KEYS?%.",
  "^KEYS?$", "PRIVATE" }

local function looks_public(path)
  local before, last = path:sub(1, 1) == "/" and ".." or "", ""
  for name in path:gmatch("[^/]+") do
    local hidden = name:sub(1, 1) == "." and name ~= "." and name ~= ".."
    if hidden and not (name == ".cache" and path:find("%.json$")) then return false end
    if before == ".." and SYSTEM[name] then return false end
    last = name:upper()
    for _, word in ipairs(SECRETS) do
      if last:find(word, 1, true) then return false end
    end
    if name ~= "." then before = name end
  end
  for _, pattern in ipairs(SECRET_FILES) do
    if last:find(pattern) then return false end
  end
  return true
end

-- Files that a script names may lie on a file system that hangs: they are read by a child that is killed in time. It
-- gets the paths as arguments, never as program text, and writes a length before each file.
local READER = [[for f do if test -f "$f" && test -r "$f"; then n=$(wc -c <"$f"); ]]
  .. [[if test "$n" -le ]] .. MAX_FILE .. [[; then echo "$n"; head -c "$n" <"$f"; else echo -; fi; else echo -; fi; done]]

return function(paths, base, seconds, room)
  local asked, words = {}, {}
  for index = 1, math.min(#paths, MAX_FILES) do
    local path = paths[index]
    if type(path) == "string" and #path > 0 and #path < 4096 and not path:find("[%z\1-\31]")
      and looks_public(path) then
      asked[#asked + 1] = path
      words[#words + 1] = quoted(absolute(path, base))
    end
  end
  local files, total = {}, 0
  if #asked == 0 then return files end
  local command = string.format("exec timeout -s KILL %.3f sh -c %s opsk %s </dev/null 2>/dev/null", seconds,
    quoted(READER), table.concat(words, " "))
  local pipe = io.popen(command, "r")
  if not pipe then return files end
  for _, path in ipairs(asked) do
    local length = pipe:read("*l")
    if not length then break end
    local size = tonumber(length:match("^%s*(%d+)%s*$"))
    if size and size > 0 then
      local text = pipe:read(size)
      if not text or #text < size then break end
      if total + size <= room then files[path], total = text, total + size end
    end
  end
  pipe:close()
  return files
end
