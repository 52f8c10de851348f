-- The store's database on MariaDB: an owner, who writes and brings the tables up, and a reader. Run it as root:
-- `set-up mariadb` does so, and sets @name, @password and @reader_password before it, which so stand in no list of
-- processes. Run twice, it changes nothing but the passwords.
SET SESSION sql_mode = '';
SET @reader = CONCAT(@name, '_reader');
EXECUTE IMMEDIATE CONCAT('CREATE DATABASE IF NOT EXISTS `', @name, '` CHARACTER SET utf8mb4');
EXECUTE IMMEDIATE CONCAT('CREATE USER IF NOT EXISTS `', @name, '`@`%`');
EXECUTE IMMEDIATE CONCAT('CREATE USER IF NOT EXISTS `', @reader, '`@`%`');
EXECUTE IMMEDIATE CONCAT('ALTER USER `', @name, '`@`%` IDENTIFIED BY ', QUOTE(@password));
EXECUTE IMMEDIATE CONCAT('ALTER USER `', @reader, '`@`%` IDENTIFIED BY ', QUOTE(@reader_password));
EXECUTE IMMEDIATE CONCAT('GRANT ALL PRIVILEGES ON `', REPLACE(@name, '_', '\\_'), '`.* TO `', @name, '`@`%`');
EXECUTE IMMEDIATE CONCAT('GRANT SELECT ON `', REPLACE(@name, '_', '\\_'), '`.* TO `', @reader, '`@`%`');
